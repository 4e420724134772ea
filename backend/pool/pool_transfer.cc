#include "backend/pool/pool_transfer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backend/base/crc32c.h"
#include "backend/pool/pool_path.h"

namespace kvcachefs {
namespace {

static_assert(kTransferBytes % kPoolChunk == 0);

// A server that starts anew again and again takes nothing.
constexpr int kWriteTries = 3;
constexpr std::uint32_t kDirectoryMode = 0755;
constexpr std::uint32_t kServiceMode = 0644;

bool is_missing(const Error& error) noexcept { return error.code == ENOENT; }

// What changes below a directory that may not be there: once more when it was made.
template <class Act>
auto below(PoolSession& session, std::string_view path, Act act, Deadline deadline)
    -> decltype(act()) {
  auto acted = act();
  const auto directory = split_pool_path(path).first;
  if (acted.ok() || !is_missing(acted.error()) || directory.empty()) return acted;
  TRY(make_directories(session, directory, deadline));
  return act();
}

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

// Of the chunks in `bytes`, which begin with one.
void append_sums(std::span<const std::byte> bytes, std::vector<std::uint32_t>& out) {
  for (std::size_t at = 0; at < bytes.size(); at += kPoolChunk)
    out.push_back(
        crc32c(0, bytes.subspan(at, std::min<std::size_t>(kPoolChunk, bytes.size() - at))));
}

std::size_t part_at(std::uint64_t offset, std::uint64_t size) noexcept {
  return static_cast<std::size_t>(std::min<std::uint64_t>(kTransferBytes, size - offset));
}

Result<void> send_bytes(PoolSession& session, PoolFile& file, const PoolSource& source,
                        Deadline deadline) {
  std::vector<std::byte> buffer(part_at(0, source.size));
  std::vector<std::uint32_t> sums;
  for (std::uint64_t offset = 0; offset < source.size;) {
    const std::span<std::byte> part(buffer.data(), part_at(offset, source.size));
    TRY(read_whole(source.fd, offset, part));
    const std::size_t first = sums.size();
    append_sums(part, sums);
    const bool is_right =
        sums.size() <= source.chunk_crc32c.size() &&
        std::equal(sums.begin() + static_cast<std::ptrdiff_t>(first), sums.end(),
                   source.chunk_crc32c.begin() + static_cast<std::ptrdiff_t>(first));
    if (!is_right) return fail(EILSEQ, "pool: a local copy is not what was sealed");
    TRY(session.write(file, offset, part, PoolWrite::kAtCommit, deadline));
    offset += part.size();
  }
  return session.commit(file, deadline);
}

Result<void> write_sums(PoolSession& session, const PoolSums& sums,
                        const std::string& temporary, Deadline deadline) {
  static_cast<void>(TRY(write_anew(session, temporary, encode_pool_sums(sums), deadline)));
  // One of a removed file, whose number this one has now, goes with it.
  const std::string path = pool_sums_path(sums.fileid);
  return below(
      session, path, [&] { return session.rename(temporary, path, deadline); }, deadline);
}

// What an earlier try under the same number has come to. nullopt: nothing that helps, and nothing is left of it.
Result<std::optional<Published>> finish_earlier_try(PoolSession& session,
                                                    const PoolSource& source,
                                                    const std::string& temporary,
                                                    Deadline deadline) {
  const Result<PoolStatus> ours = session.status(temporary, deadline);
  if (!ours.ok() && !is_missing(ours.error())) return ours.error();
  std::optional<Published> published;
  if (ours.ok()) {
    const Result<PoolStatus> standing = session.status(source.path, deadline);
    if (!standing.ok() && !is_missing(standing.error()) && standing.error().code != ENOTDIR)
      return standing.error();
    if (standing.ok() && standing->fileid == ours->fileid)
      published = Published{.status = *standing};
    TRY(session.remove(temporary, deadline));
  }
  return published;
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
  // Nobody can read one whose checksums are damaged.
  const Result<std::optional<PoolSums>> sums = find_sums(session, standing, deadline);
  const bool is_useless = !sums.ok() && sums.error().code == EILSEQ;
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
                               std::string_view bytes, Deadline deadline) {
  Result<PoolFilePtr> file = session.create(path, kServiceMode, deadline);
  if (!file.ok() && file.error().code == EEXIST) {
    TRY(session.remove(path, deadline));
    file = session.create(path, kServiceMode, deadline);
  }
  if (!file.ok()) return file.error();
  TRY(session.write(**file, 0, std::as_bytes(std::span(bytes)), PoolWrite::kNow, deadline));
  return file;
}

Result<void> make_directories(PoolSession& session, std::string_view path, Deadline deadline) {
  if (path.empty()) return {};
  Result<void> made = session.make_directory(path, kDirectoryMode, deadline);
  if (!made.ok() && is_missing(made.error())) {
    TRY(make_directories(session, split_pool_path(path).first, deadline));
    made = session.make_directory(path, kDirectoryMode, deadline);
  }
  if (made.ok() || made.error().code == EEXIST) return {};
  return made;
}

Result<Prepared> prepare_publication(PoolSession& session, const PoolSource& source,
                                     const Uuid& node, std::uint64_t number,
                                     Deadline deadline) {
  TRY(check_pool_path(source.path));
  const std::string temporary = pool_temporary_path(node, number);
  const auto create = [&] { return session.create(temporary, source.mode, deadline); };
  Result<PoolFilePtr> made = below(session, temporary, create, deadline);
  if (!made.ok() && made.error().code == EEXIST) {
    if (const auto earlier = TRY(finish_earlier_try(session, source, temporary, deadline)))
      return Prepared{.file = nullptr, .status = earlier->status};
    made = create();
  }
  if (!made.ok()) return made.error();
  PoolFile& file = **made;

  Result<void> sent = send_bytes(session, file, source, deadline);
  for (int tries = 1; tries < kWriteTries && !sent.ok() && sent.error().code == EAGAIN; ++tries)
    sent = send_bytes(session, file, source, deadline);
  Result<PoolStatus> status = sent.ok() ? session.status(file, deadline) : sent.error();
  if (status.ok() && status->size != source.size)
    status = fail(EBADMSG, "pool: a written file has another size");
  if (status.ok()) {
    const PoolSums sums{
        .fileid = status->fileid,
        .path_hash = pool_path_hash(source.path),
        .size = status->size,
        .mtime = status->mtime,
        .uid = source.uid,
        .gid = source.gid,
        .mode = source.mode,
        .keep = source.keep,
        .chunk_crc32c = {source.chunk_crc32c.begin(), source.chunk_crc32c.end()}};
    // Whoever finds the name finds these, too.
    if (const Result<void> told = write_sums(session, sums, temporary + ".sums", deadline);
        !told.ok())
      status = told.error();
  }
  // Of a file that was not published they say nothing, and go when its number is used again.
  if (!status.ok()) {
    static_cast<void>(session.remove(temporary, deadline).ok());
    return status.error();
  }
  return Prepared{.file = std::move(*made), .status = *status};
}

Result<Published> finish_publication(PoolSession& session, const PoolSource& source,
                                     const Prepared& prepared, const Uuid& node,
                                     std::uint64_t number, Deadline deadline) {
  if (prepared.file == nullptr) return Published{.status = prepared.status};
  const std::string temporary = pool_temporary_path(node, number);
  const Result<Published> published =
      link_into_place(session, *prepared.file, prepared.status, source, temporary, deadline);
  static_cast<void>(session.remove(temporary, deadline).ok());
  return published;
}

Result<Published> publish(PoolSession& session, const PoolSource& source, const Uuid& node,
                          std::uint64_t number, Deadline deadline) {
  const Prepared prepared = TRY(prepare_publication(session, source, node, number, deadline));
  return finish_publication(session, source, prepared, node, number, deadline);
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
  // It was renamed into place whole, and its path says whose it is.
  if (!sums.ok() || sums->fileid != fileid)
    return fail(EILSEQ, "pool: a record of checksums is damaged");
  return std::optional<PoolSums>(std::move(sums).value());
}

}  // namespace

Result<std::optional<PoolSums>> find_sums(PoolSession& session, const PoolStatus& status,
                                          Deadline deadline) {
  std::optional<PoolSums> sums = TRY(read_sums(session, status.fileid, deadline));
  if (sums && (sums->size != status.size || sums->mtime != status.mtime)) sums.reset();
  return sums;
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

Result<PoolStatus> describe_directory(PoolSession& session, std::string_view path,
                                      std::uint32_t uid, std::uint32_t gid, std::uint32_t mode,
                                      const Uuid& node, std::uint64_t number,
                                      Deadline deadline) {
  const PoolStatus status = TRY(session.status(path, deadline));
  if (status.kind != PoolKind::kDirectory) return fail(ENOTDIR, "pool: no directory");
  if (TRY(find_directory_owner(session, path, status, deadline))) return status;
  const PoolSums sums{.fileid = status.fileid,
                      .path_hash = pool_path_hash(path),
                      .size = 0,
                      .mtime = 0,
                      .uid = uid,
                      .gid = gid,
                      .mode = mode,
                      .keep = false,
                      .chunk_crc32c = {}};
  TRY(write_sums(session, sums, pool_temporary_path(node, number) + ".sums", deadline));
  return status;
}

Result<Fetched> fetch(PoolSession& session, std::string_view path, int fd,
                      const std::function<bool(std::uint64_t bytes)>& arrived,
                      Deadline deadline) {
  const PoolFilePtr file = TRY(session.open(path, deadline));
  Fetched fetched{.status = file->status(), .chunk_crc32c = {}, .sums = {}};
  const std::uint64_t size = fetched.status.size;
  fetched.sums = TRY(find_sums(session, fetched.status, deadline));
  std::vector<std::byte> buffer(part_at(0, size));
  for (std::uint64_t offset = 0; offset < size;) {
    const std::span<std::byte> part(buffer.data(), part_at(offset, size));
    if (TRY(session.read(*file, offset, part, deadline)) != part.size())
      return fail(EAGAIN, "pool: a file became shorter while it was read");
    const std::size_t first = fetched.chunk_crc32c.size();
    append_sums(part, fetched.chunk_crc32c);
    const auto from = static_cast<std::ptrdiff_t>(first);
    if (fetched.sums &&
        !std::equal(fetched.chunk_crc32c.begin() + from, fetched.chunk_crc32c.end(),
                    fetched.sums->chunk_crc32c.begin() + from))
      return fail(EILSEQ, "pool: a file is not what was published");
    TRY(write_whole(fd, offset, part));
    offset += part.size();
    if (arrived && !arrived(offset)) return fail(ECANCELED, "pool: not wanted any more");
  }
  const PoolStatus now = TRY(session.status(*file, deadline));
  if (now.size != size || now.mtime != fetched.status.mtime)
    return fail(EAGAIN, "pool: a file was changed while it was read");
  // Who evicts asks when it was last used. Not everybody may say so.
  static_cast<void>(session.touch(*file, deadline).ok());
  return fetched;
}

}  // namespace kvcachefs
