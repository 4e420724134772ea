#include "backend/pool/pool_check.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/base/crc32c.h"
#include "backend/base/random.h"
#include "backend/pool/pool_members.h"
#include "backend/pool/pool_path.h"
#include "backend/pool/pool_sweep.h"
#include "backend/pool/pool_transfer.h"
#include "backend/pool/pool_trash.h"
#include "backend/pool/sweeping.h"

namespace kvcachefs {
namespace {

using Clock = std::chrono::steady_clock;
using Each = std::chrono::milliseconds;

constexpr std::chrono::hours kSilent{1};
constexpr std::size_t kMostAtOnce = 256;  // files that are removed in one call
constexpr std::size_t kComparedAtOnce = std::size_t{8} << 20;
static_assert(kComparedAtOnce % kPoolChunk == 0);

// It is gone, or is another one by now: mounts go on meanwhile.
bool is_of_file(int code) noexcept {
  return code == ENOENT || code == ENOTDIR || code == EISDIR || code == ESTALE ||
         code == EACCES || code == EAGAIN || code == ELOOP;
}

std::string join(const std::string& directory, std::string_view name) {
  return directory.empty() ? std::string(name) : directory + "/" + std::string(name);
}

using Visit = std::function<Result<void>(const std::string& path, const PoolStatus& status)>;
// Of a path that stands there, or may: the file, or something in the directory, was not looked at.
using Unseen = std::function<void(const std::string& path, const Error& error)>;

Result<std::vector<std::string>> names_in(PoolSession& session, const std::string& directory,
                                          const Unseen& unseen, Each each) {
  std::vector<std::string> names;
  const Result<void> listed = session.list(
      directory,
      [&names](const PoolEntry& entry) {
        names.emplace_back(entry.name);
        return true;
      },
      Clock::now() + each);
  if (listed.ok() || listed.error().code == ENOENT) return names;
  if (listed.error().code != EBADMSG && !is_of_file(listed.error().code)) return listed.error();
  unseen(directory, listed.error());
  return names;
}

// All below a directory, that of the pool's own files left out at the top. Depth first, without recursion: paths are
// as deep as users make them.
Result<void> walk(PoolSession& session, const std::string& top, const Visit& visit,
                  const Unseen& unseen, Each each) {
  std::vector<std::string> directories = {top};
  while (!directories.empty()) {
    const std::string directory = std::move(directories.back());
    directories.pop_back();
    for (const std::string& name : TRY(names_in(session, directory, unseen, each))) {
      if (directory.empty() && name == kPoolService) continue;
      const std::string path = join(directory, name);
      const Result<PoolStatus> status = session.status(path, Clock::now() + each);
      if (!status.ok()) {
        if (!is_of_file(status.error().code)) return status.error();
        if (status.error().code != ENOENT) unseen(path, status.error());
        continue;
      }
      TRY(visit(path, *status));
      if (status->kind == PoolKind::kDirectory) directories.push_back(path);
    }
  }
  return {};
}

// EILSEQ: the bytes are others.
Result<void> compare_bytes(PoolSession& session, const std::string& path, const PoolSums& sums,
                           Each each) {
  const PoolFilePtr file = TRY(session.open(path, Clock::now() + each));
  const std::uint64_t size = file->status().size;
  if (file->status().fileid != sums.fileid || size != sums.size)
    return fail(ESTALE, "pool: another file by now");
  std::vector<std::byte> buffer(
      static_cast<std::size_t>(std::min<std::uint64_t>(size, kComparedAtOnce)));
  std::size_t chunk = 0;
  for (std::uint64_t offset = 0; offset < size;) {
    const std::span<std::byte> part(
        buffer.data(),
        static_cast<std::size_t>(std::min<std::uint64_t>(size - offset, buffer.size())));
    if (TRY(session.read(*file, offset, part, Clock::now() + each)) != part.size())
      return fail(EAGAIN, "pool: changed meanwhile");
    for (std::size_t at = 0; at < part.size(); at += kPoolChunk, ++chunk) {
      const auto bytes = part.subspan(at, std::min<std::size_t>(kPoolChunk, part.size() - at));
      if (chunk >= sums.chunk_crc32c.size() || crc32c(0, bytes) != sums.chunk_crc32c[chunk])
        return fail(EILSEQ, "pool: not what was published");
    }
    offset += part.size();
  }
  return {};
}

// How many files all calls have removed.
Result<std::uint64_t> in_batches(const std::function<Result<Swept>(Deadline)>& sweep,
                                 Each each) {
  std::uint64_t files = 0;
  for (bool all = false; !all;) {
    const Swept swept = TRY(sweep(Clock::now() + each));
    files += swept.files;
    all = swept.all || swept.files == 0;
  }
  return files;
}

std::optional<std::uint64_t> parse_record_name(std::string_view name) noexcept {
  std::uint64_t fileid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), fileid, 16);
  if (name.size() != 16 || error != std::errc{} || end != name.data() + name.size())
    return std::nullopt;
  return fileid;
}

// Of files that are gone. `standing`: the numbers of all that are there. Young ones may be of a file that is about to
// be published.
Result<std::uint64_t> sweep_records(PoolSession& session,
                                    const std::unordered_set<std::uint64_t>& standing,
                                    UnixNanos now, Each each) {
  std::uint64_t removed = 0;
  const auto visit = [&](const std::string& path, const PoolStatus& status) -> Result<void> {
    const auto fileid = parse_record_name(split_pool_path(path).second);
    if (status.kind != PoolKind::kFile || !fileid || standing.count(*fileid) > 0 ||
        now - status.mtime < std::chrono::nanoseconds(kSilent).count())
      return {};
    const Result<void> gone = session.remove(path, Clock::now() + each);
    if (!gone.ok() && !is_of_file(gone.error().code)) return gone;
    if (gone.ok()) ++removed;
    return {};
  };
  for (const char* const records : {"sums", "told"})
    TRY(walk(
        session, pool_service_path(records), visit, [](auto, auto) {}, each));
  return removed;
}

}  // namespace

Result<PoolCheck> check_pool_files(PoolSession& session, bool read, const PoolFinding& found,
                                   Each each) {
  PoolCheck check;
  const auto visit = [&](const std::string& path, const PoolStatus& status) -> Result<void> {
    if (status.kind == PoolKind::kDirectory) {
      ++check.directories;
      return {};
    }
    if (status.kind == PoolKind::kOther) {
      ++check.others;
      return {};
    }
    ++check.files;
    check.bytes += status.size;
    const auto standing = find_sums(session, status, Clock::now() + each);
    if (!standing.ok() && standing.error().code == EILSEQ) {
      ++check.described;
      ++check.damaged;
      found(path, "its size is not that of what was published, or its checksums are damaged");
      return {};
    }
    const std::optional<PoolSums> sums = TRY(standing);
    if (!sums || !sums->speaks_of_bytes()) return {};
    ++check.described;
    if (!read) return {};
    const Result<void> compared = compare_bytes(session, path, *sums, each);
    if (compared.ok()) return {};
    if (compared.error().code == EILSEQ) {
      ++check.damaged;
      found(path, "its bytes are not those that were published");
      return {};
    }
    return is_of_file(compared.error().code) ? Result<void>{} : compared;
  };
  const auto unseen = [&found](const std::string& path, const Error& error) {
    if (error.code == EBADMSG)
      found(path, "holds a name that is none: what is behind it is not seen");
    if (error.code == EACCES) found(path, "cannot be looked at: permission denied");
  };
  TRY(walk(session, "", visit, unseen, each));
  return check;
}

namespace {

// Whether a mount may have answered its users with what is in the trash by now, and still runs. One that has ended in
// order grants no lease. A heartbeat that is yet to come is of the time before the server's clock was set back.
bool may_read(const PoolMember& member, UnixNanos now) noexcept {
  const std::int64_t silent = now - member.beaten;
  const std::int64_t after = std::chrono::nanoseconds(kSilentAfter).count();
  return member.node.lease.count() > 0 && silent < after && silent > -after;
}

Result<void> empty_trash(PoolSession& session, PoolGarbage& garbage, UnixNanos before,
                         Each each) {
  TrashRule rule = TrashRule::nothing_stays();
  if (garbage.living > 0) rule.before = before;
  for (bool all = false; !all;) {
    const TrashSwept swept = TRY(sweep_trash(session, rule, kMostAtOnce, Clock::now() + each));
    garbage.trash.files += swept.removed.files;
    garbage.trash.bytes += swept.removed.bytes;
    garbage.trash_left = swept.left;
    all = swept.all || swept.removed.files == 0;
  }
  return {};
}

}  // namespace

Result<PoolGarbage> collect_pool_garbage(PoolSession& session, UnixNanos now, Each each) {
  PoolGarbage garbage;
  std::chrono::nanoseconds longest{0};
  for (const PoolMember& member : TRY(list_members(session, Clock::now() + each))) {
    if (may_read(member, now)) {
      longest = std::max<std::chrono::nanoseconds>(longest, member.node.lease);
      ++garbage.living;
    }
    if (now - member.beaten < std::chrono::nanoseconds(kSilent).count()) continue;
    const Uuid& node = member.node.node;
    garbage.temporaries += TRY(in_batches(
        [&](Deadline deadline) {
          return sweep_node(session, node, member.beaten, kMostAtOnce, deadline);
        },
        each));
    const Result<PoolStatus> left = session.status(pool_node_path(node), Clock::now() + each);
    if (!left.ok() && left.error().code == ENOENT) ++garbage.nodes;
  }
  TRY(empty_trash(session, garbage, now - 2 * longest.count(), each));
  std::unordered_set<std::uint64_t> standing;
  const auto visit = [&](const std::string&, const PoolStatus& status) -> Result<void> {
    standing.insert(status.fileid);
    return {};
  };
  const auto unseen = [&](const std::string&, const Error&) { garbage.all_seen = false; };
  for (const std::string& top :
       {std::string{}, pool_service_path("trash"), pool_service_path("tmp")})
    TRY(walk(session, top, visit, unseen, each));
  // A file that was not seen may stand there.
  if (garbage.all_seen) garbage.records = TRY(sweep_records(session, standing, now, each));
  return garbage;
}

Result<UnixNanos> pool_time(PoolSession& session, Deadline deadline) {
  const std::string path = pool_service_path("clock-" + format_uuid(random_uuid()));
  const Result<PoolFilePtr> made = write_anew(session, path, "now", PoolWrite::kNow, deadline);
  if (!made.ok() && (made.error().code == ENOSPC || made.error().code == EDQUOT)) {
    static_cast<void>(session.remove(path, deadline).ok());
    const PoolFilePtr standing = TRY(session.open(pool_superblock_path(), deadline));
    TRY(session.touch(*standing, deadline));
    return TRY(session.status(*standing, deadline)).atime;
  }
  if (!made.ok()) return made.error();
  const Result<PoolStatus> status = session.status(**made, deadline);
  static_cast<void>(session.remove(path, deadline).ok());
  if (!status.ok()) return status.error();
  return status->mtime;
}

}  // namespace kvcachefs
