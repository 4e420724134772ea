#include "backend/pool/pool_transfer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/crc32c.h"
#include "backend/pool/below.h"
#include "backend/pool/pool_path.h"

namespace kvcachefs {
namespace {

static_assert(PoolSession::kMostAtOnce % kPoolChunk == 0);

// A server that starts anew again and again takes nothing.
constexpr int kWriteTries = 3;
constexpr std::uint32_t kDirectoryMode = 0755;
// Of the name of a temporary that becomes a record of checksums.
constexpr const char* kSumsSuffix = ".sums";

bool is_missing(const Error& error) noexcept { return error.code == ENOENT; }

Result<void> read_whole(int fd, std::uint64_t offset, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("pool: read a local copy");
    if (got == 0) return fail(EILSEQ, "pool: a local copy is too short");
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Result<void> write_whole(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::pwrite(fd, bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_errno("pool: write a local copy");
    done += static_cast<std::size_t>(put);
  }
  return {};
}

// The checksums of a file whose bytes come in parts, in any order. Of a chunk that does not come in one part, as servers
// give it that have less at once, they are made when all is there.
class ChunkSums {
 public:
  explicit ChunkSums(std::uint64_t size)
      : size_(size),
        sums_(static_cast<std::size_t>((size + kPoolChunk - 1) / kPoolChunk)),
        known_(sums_.size(), false) {}

  [[nodiscard]] std::size_t count() const noexcept { return sums_.size(); }
  // Those of a chunk; it ends with the file at the latest.
  [[nodiscard]] std::uint64_t begin_of(std::size_t chunk) const noexcept {
    return std::uint64_t{chunk} * kPoolChunk;
  }
  [[nodiscard]] std::size_t size_of(std::size_t chunk) const noexcept {
    return static_cast<std::size_t>(
        std::min<std::uint64_t>(kPoolChunk, size_ - begin_of(chunk)));
  }
  // False: a whole chunk differs from what `expected`, the first one's sum, says of it; null: nobody says it.
  bool take(std::uint64_t at, std::span<const std::byte> bytes, const std::uint32_t* expected) {
    for (std::size_t chunk = first_from(at); is_within(chunk, at, bytes.size()); ++chunk) {
      const auto skipped = static_cast<std::size_t>(begin_of(chunk) - at);
      sums_[chunk] = crc32c(0, bytes.subspan(skipped, size_of(chunk)));
      known_[chunk] = true;
      if (expected != nullptr && sums_[chunk] != expected[chunk]) return false;
    }
    return true;
  }
  // The chunks that lie within these bytes whole: from this one on, as long as is_within().
  [[nodiscard]] static std::size_t first_from(std::uint64_t at) noexcept {
    return static_cast<std::size_t>((at + kPoolChunk - 1) / kPoolChunk);
  }
  [[nodiscard]] bool is_within(std::size_t chunk, std::uint64_t at,
                               std::size_t size) const noexcept {
    return chunk < count() && begin_of(chunk) + size_of(chunk) <= at + size;
  }
  [[nodiscard]] bool knows(std::size_t chunk) const { return known_[chunk]; }
  [[nodiscard]] std::vector<std::uint32_t>& sums() noexcept { return sums_; }

 private:
  std::uint64_t size_;
  std::vector<std::uint32_t> sums_;
  std::vector<bool> known_;
};

// Fills a part of what is sent with the local bytes, compared with their sums. A part need not begin with a chunk: the
// server may have taken less than it was given.
Result<void> read_sealed(const PoolSource& source, std::uint64_t at, std::span<std::byte> out) {
  std::vector<std::byte> chunk;
  while (!out.empty()) {
    const std::uint64_t number = at / kPoolChunk;
    const std::uint64_t begin = number * kPoolChunk;
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(kPoolChunk, source.size - begin));
    const auto skipped = static_cast<std::size_t>(at - begin);
    const std::size_t count = std::min(size - skipped, out.size());
    // A whole chunk goes straight to where it is wanted.
    std::span<std::byte> bytes = out.first(count);
    if (count < size) {
      chunk.resize(size);
      bytes = chunk;
    }
    TRY(read_whole(source.fd, begin, bytes));
    if (number >= source.chunk_crc32c.size() ||
        crc32c(0, bytes) != source.chunk_crc32c[static_cast<std::size_t>(number)])
      return fail(EILSEQ, "pool: a local copy is not what was sealed");
    if (count < size)
      std::copy_n(chunk.begin() + static_cast<std::ptrdiff_t>(skipped), count, out.begin());
    out = out.subspan(count);
    at += count;
  }
  return {};
}

Result<PoolStatus> send_bytes(PoolSession& session, PoolFile& file, const PoolSource& source,
                              Deadline deadline) {
  return session.store(
      file, source.size,
      [&source](std::uint64_t at, std::span<std::byte> out) {
        return read_sealed(source, at, out);
      },
      deadline);
}

// Leaves the temporary. Not by RENAME: Ganesha's, from a directory that is in use to another, sleeps for a second
// (mdcache_src_dest_lock() of its FSAL_MDCACHE).
Result<void> write_sums(PoolSession& session, const PoolSums& sums,
                        const std::string& temporary, PoolWrite when, Deadline deadline) {
  const PoolFilePtr file =
      TRY(write_anew(session, temporary, encode_pool_sums(sums), when, deadline));
  const std::string path = pool_sums_path(sums.fileid);
  Result<void> linked = below(
      session, path, [&] { return session.link(*file, path, deadline); }, deadline);
  if (linked.ok() || linked.error().code != EEXIST) return linked;
  // One of a removed file, whose number this one has now, goes with it.
  return session.rename(temporary, path, deadline);
}

PoolSums sums_of(const PoolSource& source, const PoolStatus& status) {
  return {.fileid = status.fileid,
          .path_hash = pool_path_hash(source.path),
          .size = status.size,
          .mtime = status.mtime,
          .uid = source.uid,
          .gid = source.gid,
          .mode = source.mode,
          .keep = source.keep,
          .chunk_crc32c = {source.chunk_crc32c.begin(), source.chunk_crc32c.end()}};
}

// Whether it is what an earlier try has published. Its number alone does not tell: what was published of the name before
// may have it, too.
Result<bool> is_of_earlier_try(PoolSession& session, const PoolSource& source,
                               const PoolStatus& standing, Deadline deadline) {
  const auto& files = source.earlier_files;
  if (std::find(files.begin(), files.end(), standing.fileid) == files.end()) return false;
  // Its record may be that of the same bytes.
  if (source.damaged != 0 && standing.fileid == source.damaged) return false;
  const Result<std::optional<PoolSums>> sums = find_sums(session, standing, deadline);
  if (!sums.ok() && sums.error().code != EILSEQ) return sums.error();
  return sums.ok() && *sums && **sums == sums_of(source, standing);
}

// Removes what earlier tries have left, so that a LINK or a RENAME of theirs that is still to come finds nothing; only
// then it is known what they came to. nullopt: none has published it.
Result<std::optional<PoolStatus>> end_earlier_tries(PoolSession& session,
                                                    const PoolSource& source, const Uuid& node,
                                                    Deadline deadline) {
  for (const std::uint64_t number : source.earlier_tries) {
    const std::string temporary = pool_temporary_path(node, number);
    TRY(remove_if_there(session, temporary + kSumsSuffix, deadline));
    TRY(remove_if_there(session, temporary, deadline));
  }
  if (source.earlier_files.empty()) return std::optional<PoolStatus>{};
  const Result<PoolStatus> standing = session.status(source.path, deadline);
  if (!standing.ok()) {
    if (is_missing(standing.error()) || standing.error().code == ENOTDIR)
      return std::optional<PoolStatus>{};
    return standing.error();
  }
  if (!TRY(is_of_earlier_try(session, source, *standing, deadline)))
    return std::optional<PoolStatus>{};
  return std::optional<PoolStatus>(*standing);
}

Result<Published> link_into_place(PoolSession& session, PoolFile& file,
                                  const PoolStatus& status, const PoolSource& source,
                                  const std::string& temporary, Deadline deadline) {
  const std::string& path = source.path;
  const Result<void> linked = below(
      session, path, [&] { return session.link(file, path, deadline); }, deadline);
  if (linked.ok()) return Published{.status = status};
  if (linked.error().code != EEXIST) return linked.error();
  const PoolStatus standing = TRY(session.status(path, deadline));
  const bool is_other = standing.fileid != status.fileid;
  if (is_other && TRY(is_of_earlier_try(session, source, standing, deadline)))
    return Published{.status = standing};
  // Nobody can read one that is damaged, or whose checksums are.
  const Result<std::optional<PoolSums>> sums = find_sums(session, standing, deadline);
  const bool is_useless = (!sums.ok() && sums.error().code == EILSEQ) ||
                          (source.damaged != 0 && standing.fileid == source.damaged);
  const bool replaces = source.replaces || is_useless;
  if (is_other && !replaces) {
    // It is of use.
    const Result<PoolFilePtr> first = session.open(path, deadline);
    if (first.ok()) static_cast<void>(session.touch(**first, deadline).ok());
  }
  if (!is_other || !replaces) return Published{.is_duplicate = is_other, .status = standing};
  if (standing.kind != PoolKind::kFile)
    return fail(EISDIR, "pool: something else has the name");
  TRY(session.rename(temporary, path, deadline));
  return Published{.status = status, .replaced = standing.fileid};
}

}  // namespace

Result<PoolFilePtr> write_anew(PoolSession& session, std::string_view path,
                               std::string_view bytes, PoolWrite when, Deadline deadline) {
  Result<PoolFilePtr> file = session.create(path, kPoolServiceMode, deadline);
  if (!file.ok() && file.error().code == EEXIST) {
    TRY(session.remove(path, deadline));
    file = session.create(path, kPoolServiceMode, deadline);
  }
  if (!file.ok()) return file.error();
  TRY(session.write(**file, 0, std::as_bytes(std::span(bytes)), when, deadline));
  return file;
}

Result<void> remove_if_there(PoolSession& session, std::string_view path, Deadline deadline) {
  const Result<void> removed = session.remove(path, deadline);
  if (!removed.ok() && !is_missing(removed.error()) && removed.error().code != ESTALE)
    return removed;
  return {};
}

Result<void> make_directories(PoolSession& session, std::string_view path, Deadline deadline,
                              std::vector<MadeDirectory>* made) {
  if (path.empty()) return {};
  // From the top: there is nothing to be found in one that was made just now.
  bool is_above_new = false;
  for (std::size_t end = 0; end != path.size();) {
    end = std::min(path.find('/', end + 1), path.size());
    const std::string_view part = path.substr(0, end);
    if (!is_above_new) {
      const Result<void> found = session.find_directory(part, deadline);
      if (found.ok()) continue;
      if (!is_missing(found.error())) return found;
    }
    const Result<std::uint64_t> fileid = session.make_directory(part, kDirectoryMode, deadline);
    is_above_new = fileid.ok();
    if (!fileid.ok() && fileid.error().code != EEXIST) return fileid.error();
    if (fileid.ok() && made != nullptr)
      made->push_back({.path = std::string(part), .fileid = *fileid});
  }
  return {};
}

Result<Prepared> prepare_publication(PoolSession& session, const PoolSource& source,
                                     const Uuid& node, std::uint64_t number,
                                     Deadline deadline) {
  TRY(check_pool_path(source.path));
  // What is done here is not done while others wait for the name.
  Prepared prepared;
  TRY(make_directories(session, split_pool_path(source.path).first, deadline, &prepared.made));
  if (const auto published = TRY(end_earlier_tries(session, source, node, deadline))) {
    prepared.status = *published;
    return prepared;
  }
  if (source.replaces) {
    const Result<PoolStatus> standing = session.status(source.path, deadline);
    if (standing.ok()) prepared.standing = standing->fileid;
  }
  const std::string temporary = pool_temporary_path(node, number);
  const Result<PoolFilePtr> made = below(
      session, temporary,
      [&] { return session.create(temporary, source.mode & 0777, deadline); }, deadline);
  if (!made.ok()) return made.error();
  PoolFile& file = **made;

  Result<PoolStatus> status = send_bytes(session, file, source, deadline);
  for (int tries = 1; tries < kWriteTries && !status.ok() && status.error().code == EAGAIN;
       ++tries)
    status = send_bytes(session, file, source, deadline);
  if (status.ok() && status->size != source.size)
    status = fail(EBADMSG, "pool: a written file has another size");
  if (status.ok()) {
    // Whoever finds the name finds these, too.
    if (const Result<void> told =
            write_sums(session, sums_of(source, *status), temporary + kSumsSuffix,
                       PoolWrite::kNow, deadline);
        !told.ok())
      status = told.error();
  }
  // Of a file that was not published they say nothing, and go when its number is used again.
  if (!status.ok()) {
    clear_publication(session, node, number, deadline);
    return status.error();
  }
  prepared.file = *made;
  prepared.status = *status;
  return prepared;
}

Result<Published> finish_publication(PoolSession& session, const PoolSource& source,
                                     const Prepared& prepared, const Uuid& node,
                                     std::uint64_t number, Deadline deadline) {
  if (prepared.file == nullptr) return Published{.status = prepared.status};
  const std::string temporary = pool_temporary_path(node, number);
  Result<Published> published =
      link_into_place(session, *prepared.file, prepared.status, source, temporary, deadline);
  if (!published.ok()) clear_publication(session, node, number, deadline);
  return published;
}

void clear_publication(PoolSession& session, const Uuid& node, std::uint64_t number,
                       Deadline deadline) {
  const std::string temporary = pool_temporary_path(node, number);
  static_cast<void>(session.remove(temporary + kSumsSuffix, deadline).ok());
  static_cast<void>(session.remove(temporary, deadline).ok());
}

Result<Published> publish(PoolSession& session, const PoolSource& source, const Uuid& node,
                          std::uint64_t number, Deadline deadline) {
  const Prepared prepared = TRY(prepare_publication(session, source, node, number, deadline));
  Published published =
      TRY(finish_publication(session, source, prepared, node, number, deadline));
  if (prepared.file != nullptr) clear_publication(session, node, number, deadline);
  return published;
}

namespace {

// The record under that number, of whatever file that was.
Result<std::optional<PoolSums>> read_sums(PoolSession& session, std::uint64_t fileid,
                                          Deadline deadline) {
  const Result<PoolFilePtr> file = session.open(pool_sums_path(fileid), deadline);
  if (!file.ok()) {
    const int code = file.error().code;
    if (code == ENOENT || code == ENOTDIR || code == EISDIR) return std::optional<PoolSums>{};
    return file.error();
  }
  const std::uint64_t size = (*file)->status().size;
  if (size > kMostPoolSums) return fail(EILSEQ, "pool: a record of checksums is too long");
  std::string bytes(size, '\0');
  const std::size_t got =
      TRY(session.read(**file, 0, std::as_writable_bytes(std::span(bytes)), deadline));
  bytes.resize(got);
  Result<PoolSums> sums = decode_pool_sums(bytes);
  // A file's was given its name whole, and its path says whose it is.
  if (!sums.ok() || sums->fileid != fileid)
    return fail(EILSEQ, "pool: a record of checksums is damaged");
  return std::optional<PoolSums>(std::move(sums).value());
}

}  // namespace

Result<std::optional<PoolSums>> find_sums(PoolSession& session, const PoolStatus& status,
                                          Deadline deadline) {
  std::optional<PoolSums> sums = TRY(read_sums(session, status.fileid, deadline));
  if (!sums || (sums->size == status.size && sums->mtime == status.mtime)) return sums;
  // Cut or grown, and nobody wrote to it. Where times have whole seconds only, somebody may have within one.
  const bool is_same_time = sums->mtime == status.mtime && status.mtime % kNanosPerSecond != 0;
  if (is_same_time && sums->speaks_of_bytes())
    return fail(EILSEQ, "pool: a file is not as long as what was published");
  return std::optional<PoolSums>{};
}

Result<std::optional<PoolSums>> find_directory_owner(PoolSession& session,
                                                     std::string_view path,
                                                     const PoolStatus& status,
                                                     Deadline deadline) {
  Result<std::optional<PoolSums>> sums = read_sums(session, status.fileid, deadline);
  // It has no bytes that could be wrong.
  if (!sums.ok() && sums.error().code == EILSEQ) return std::optional<PoolSums>{};
  // What happens in a directory moves its times.
  if (sums.ok() && *sums &&
      ((*sums)->path_hash != pool_path_hash(path) || (*sums)->size != 0 || (*sums)->mtime != 0))
    sums->reset();
  return sums;
}

Result<std::uint64_t> describe_directory(PoolSession& session, const DirectoryOwner& owner,
                                         const Uuid& node, Deadline deadline) {
  std::uint64_t fileid = owner.made;
  // A directory that is gone may have had its number.
  if (fileid != 0) TRY(remove_if_there(session, pool_told_path(fileid), deadline));
  if (fileid == 0) {
    const PoolStatus status = TRY(session.status(owner.path, deadline));
    if (status.kind != PoolKind::kDirectory) return fail(ENOTDIR, "pool: no directory");
    fileid = status.fileid;
    if (TRY(find_directory_owner(session, owner.path, status, deadline))) return fileid;
  }
  const PoolSums sums{.fileid = fileid,
                      .path_hash = pool_path_hash(owner.path),
                      .size = 0,
                      .mtime = 0,
                      .uid = owner.uid,
                      .gid = owner.gid,
                      .mode = owner.mode,
                      .keep = false,
                      .chunk_crc32c = {}};
  // A server that starts anew may lose it; then it is as if nobody had said it. So it is where half of one is read: a
  // directory has no bytes that could be wrong.
  const std::string bytes = encode_pool_sums(sums);
  const std::string path = pool_sums_path(fileid);
  const Result<PoolFilePtr> file = below(
      session, path, [&] { return session.create(path, kPoolServiceMode, deadline); },
      deadline);
  if (file.ok()) {
    TRY(session.write(**file, 0, std::as_bytes(std::span(bytes)), PoolWrite::kAtCommit,
                      deadline));
    return fileid;
  }
  if (file.error().code != EEXIST) return file.error();
  const std::string temporary = pool_temporary_path(node, owner.number) + kSumsSuffix;
  const Result<void> told =
      write_sums(session, sums, temporary, PoolWrite::kAtCommit, deadline);
  static_cast<void>(session.remove(temporary, deadline).ok());
  TRY(told);
  return fileid;
}

namespace {

// In the place of the one that stands.
Result<void> replace_sums(PoolSession& session, const PoolSums& sums,
                          const std::string& temporary, Deadline deadline) {
  const std::string bytes = encode_pool_sums(sums);
  const std::string path = pool_sums_path(sums.fileid);
  const Result<PoolFilePtr> written = below(
      session, temporary,
      [&] { return write_anew(session, temporary, bytes, PoolWrite::kNow, deadline); },
      deadline);
  if (written.ok()) return session.rename(temporary, path, deadline);
  const int code = written.error().code;
  if (code != ENOSPC && code != EDQUOT) return written.error();
  static_cast<void>(session.remove(temporary, deadline).ok());
  const PoolFilePtr standing = TRY(session.open_to_write(path, deadline));
  return session.write(*standing, 0, std::as_bytes(std::span(bytes)), PoolWrite::kNow,
                       deadline);
}

}  // namespace

Result<std::optional<PoolSums>> change_owner(PoolSession& session, const PoolOwner& owner,
                                             const Uuid& node, Deadline deadline) {
  const std::optional<PoolSums> none;
  const Result<PoolStatus> status = session.status(owner.path, deadline);
  if (!status.ok()) {
    if (is_missing(status.error()) || status.error().code == ENOTDIR) return none;
    return status.error();
  }
  if (status->fileid != owner.fileid || status->kind == PoolKind::kOther) return none;
  const bool is_file = status->kind == PoolKind::kFile;
  const Result<std::optional<PoolSums>> standing =
      is_file ? find_sums(session, *status, deadline)
              : find_directory_owner(session, owner.path, *status, deadline);
  if (!standing.ok() && standing.error().code == EILSEQ) return none;
  if (!standing.ok()) return standing.error();
  PoolSums sums = standing->value_or(PoolSums{});
  if (!*standing) {
    sums.fileid = owner.fileid;
    sums.path_hash = pool_path_hash(owner.path);
    sums.size = is_file ? status->size : 0;
    sums.mtime = is_file ? status->mtime : 0;
    sums.uid = owner.other_uid;
    sums.gid = owner.other_gid;
    sums.mode = is_file ? owner.other_file_mode : owner.other_directory_mode;
  }
  sums.uid = owner.uid.value_or(sums.uid);
  sums.gid = owner.gid.value_or(sums.gid);
  sums.mode = owner.mode.value_or(sums.mode);
  if (is_file) sums.keep = owner.keep.value_or(sums.keep);
  // An earlier try may have been answered to nobody.
  if (*standing && **standing == sums) return std::optional(std::move(sums));
  const std::string temporary = pool_temporary_path(node, owner.number) + kSumsSuffix;
  if (*standing) {
    TRY(replace_sums(session, sums, temporary, deadline));
    return std::optional(std::move(sums));
  }
  const Result<void> told = below(
      session, temporary,
      [&] { return write_sums(session, sums, temporary, PoolWrite::kNow, deadline); },
      deadline);
  static_cast<void>(session.remove(temporary, deadline).ok());
  TRY(told);
  return std::optional(std::move(sums));
}

Result<PoolKnown> find_known(PoolSession& session, std::string_view path, Deadline deadline) {
  PoolFound found = TRY(session.find(path, deadline));
  PoolKnown known{.file = std::move(found.file), .status = found.status, .sums = {}};
  if (known.status.kind == PoolKind::kFile)
    known.sums = TRY(find_sums(session, known.status, deadline));
  return known;
}

namespace {

// The bytes of a file from `offset` on, which go to the same place of `fd`; chunks are counted
// from there. It calls `came` with each part of them, and `arrived` with each chunk that was
// compared and written.
// True: it is as it was opened, as far as the server has said so already.
Result<bool> fetch_bytes(PoolSession& session, PoolFile& file, std::uint64_t offset,
                         std::uint64_t size, int fd, ChunkSums& sums,
                         const std::uint32_t* expected, const std::function<void()>& came,
                         const std::function<void(std::size_t)>& arrived, PoolPace pace,
                         Deadline deadline) {
  const Error differs = fail(EILSEQ, "pool: a file is not what was published");
  const PoolRead read = TRY(session.read_parts(
      file, offset, size,
      [&](std::uint64_t at, std::span<const std::byte> bytes) -> Result<void> {
        // Whoever waited has been answered, and may have asked somebody else.
        if (std::chrono::steady_clock::now() >= deadline)
          return fail(ETIMEDOUT, "pool: bytes came after the deadline");
        came();
        const std::uint64_t from = at - offset;
        if (!sums.take(from, bytes, expected)) return differs;
        TRY(write_whole(fd, at, bytes));
        for (std::size_t chunk = ChunkSums::first_from(from);
             sums.is_within(chunk, from, bytes.size()); ++chunk)
          arrived(chunk);
        return {};
      },
      pace, deadline));
  if (read.count != size) return fail(EAGAIN, "pool: a file became shorter while it was read");
  for (std::size_t chunk = 0; chunk < sums.count(); ++chunk) {
    if (sums.knows(chunk)) continue;
    std::vector<std::byte> bytes(sums.size_of(chunk));
    TRY(read_whole(fd, offset + sums.begin_of(chunk), bytes));
    if (!sums.take(sums.begin_of(chunk), bytes, expected)) return differs;
    arrived(chunk);
  }
  return read.is_as_opened;
}

Result<void> check_same(PoolSession& session, PoolFile& file, const PoolStatus& opened,
                        Deadline deadline) {
  if (is_same_file(TRY(session.status(file, deadline)), opened)) return {};
  return fail(EAGAIN, "pool: a file was changed while it was read");
}

}  // namespace

Result<void> fetch_part(
    PoolSession& session, const PoolKnown& known, std::uint64_t offset, std::uint64_t size,
    int fd, const std::function<void()>& came,
    const std::function<void(std::size_t chunk, std::uint32_t sum)>& arrived,
    Deadline deadline) {
  const auto first = static_cast<std::size_t>(offset / kPoolChunk);
  ChunkSums sums(size);
  const bool is_compared = known.sums && known.sums->speaks_of_bytes();
  if (is_compared && known.sums->chunk_crc32c.size() < first + sums.count())
    return fail(EILSEQ, "pool: a record of checksums is of another size");
  const std::uint32_t* const expected =
      is_compared ? known.sums->chunk_crc32c.data() + first : nullptr;
  const bool is_as_opened = TRY(fetch_bytes(
      session, *known.file, offset, size, fd, sums, expected, came,
      [&](std::size_t chunk) { arrived(first + chunk, sums.sums()[chunk]); }, PoolPace::kPrompt,
      deadline));
  // What is compared with nothing has to be what was found.
  if (!is_compared && !is_as_opened)
    TRY(check_same(session, *known.file, known.status, deadline));
  return {};
}

Result<Fetched> fetch(PoolSession& session, std::string_view path,
                      std::optional<PoolKnown> known, int fd, Deadline deadline,
                      PoolPace pace) {
  Fetched fetched;
  if (known && known->file != nullptr) {
    fetched.file = std::move(known->file);
    fetched.status = known->status;
    fetched.sums = std::move(known->sums);
  } else {
    fetched.file = TRY(session.open(path, deadline));
    fetched.status = fetched.file->status();
    fetched.sums = TRY(find_sums(session, fetched.status, deadline));
  }
  const std::uint64_t size = fetched.status.size;
  ChunkSums sums(size);
  const bool is_compared = fetched.sums && fetched.sums->speaks_of_bytes();
  if (is_compared && fetched.sums->chunk_crc32c.size() != sums.count())
    return fail(EILSEQ, "pool: a record of checksums is of another size");
  const bool is_as_opened = TRY(fetch_bytes(
      session, *fetched.file, 0, size, fd, sums,
      is_compared ? fetched.sums->chunk_crc32c.data() : nullptr, [] {}, [](std::size_t) {},
      pace, deadline));
  fetched.chunk_crc32c = std::move(sums.sums());
  if (!is_as_opened) TRY(check_same(session, *fetched.file, fetched.status, deadline));
  return fetched;
}

}  // namespace kvcachefs
