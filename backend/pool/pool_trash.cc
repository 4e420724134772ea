#include "backend/pool/pool_trash.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/pool/below.h"
#include "backend/pool/pool_path.h"
#include "backend/pool/pool_transfer.h"
#include "backend/pool/sweeping.h"

namespace kvcachefs {
namespace {

constexpr std::int64_t kHour = 3600 * kNanosPerSecond;
constexpr std::size_t kMostSeen = 2 * kMostTrashFiles;
// How far a name may be ahead of what this node takes for the server's time: nodes ask for it at different times, and
// hear the answers late. A file stays for so much longer at most.
constexpr std::int64_t kMostAhead = 60 * kNanosPerSecond;
// Bytes of one file: what is counted can be summed up.
constexpr std::uint64_t kMostOfOneFile = std::uint64_t{1} << 46;
static_assert(kMostOfOneFile <= UINT64_MAX / kMostSeen);

bool has_gone(const Error& error) noexcept {
  return error.code == ENOENT || error.code == ESTALE;
}

bool has_no_room(const Error& error) noexcept {
  return error.code == ENOSPC || error.code == EDQUOT;
}

// The server, or the way to it, rather than a file.
bool is_of_server(const Error& error) noexcept {
  return error.code == ETIMEDOUT || error.code == ENOTCONN || error.code == EROFS;
}

struct TrashDirectory {
  std::string path;
  std::optional<std::uint64_t> hour;  // since 1970
  std::size_t left = 0;               // what is in it, whatever that is
};

struct TrashFile {
  std::string path;
  std::size_t directory = 0;  // among those that were seen
  std::uint64_t fileid = 0;
  std::uint64_t since = 0;  // seconds since 1970
  std::uint64_t said = 0;   // by its name: later than `since` if that is yet to come
  std::uint64_t size = 0;
  std::uint64_t taken = 0;
  bool is_removed = false;

  // Went there before the other. Numbers of one node in one second go up: a longer name is a larger number.
  [[nodiscard]] bool operator<(const TrashFile& other) const noexcept {
    return std::make_tuple(since, said, path.size(), std::string_view(path)) <
           std::make_tuple(other.since, other.said, other.path.size(),
                           std::string_view(other.path));
  }
};

struct TrashListing {
  std::vector<TrashDirectory> directories;
  std::vector<TrashFile> files;  // from the oldest on
  bool tells_taken = false;      // the pool's filesystem tells what files take

  // As the pool's files are counted (PoolTally).
  [[nodiscard]] std::uint64_t bytes_of(const TrashFile& file) const noexcept {
    const std::uint64_t bytes = tells_taken ? std::min(file.size, file.taken) : file.size;
    return std::min(bytes, kMostOfOneFile);
  }
};

// The directories from the oldest hour on; before them the one that is of no hour.
Result<std::vector<TrashDirectory>> trash_directories(PoolSession& session, Deadline deadline) {
  const std::string trash = pool_service_path("trash");
  std::vector<TrashDirectory> directories;
  for (const std::string& name : TRY(list_some(session, trash, deadline)))
    directories.push_back({.path = trash + "/" + name, .hour = parse_pool_trash_hour(name)});
  std::stable_sort(directories.begin(), directories.end(),
                   [](const auto& a, const auto& b) { return a.hour < b.hour; });
  return directories;
}

// Names that say a time after `latest`, in seconds since 1970, count as of then.
Result<TrashListing> list_trash(PoolSession& session, std::uint64_t latest, Deadline deadline) {
  TrashListing listing{.directories = TRY(trash_directories(session, deadline)), .files = {}};
  for (std::size_t i = 0; i < listing.directories.size(); ++i) {
    TrashDirectory& directory = listing.directories[i];
    const Result<void> listed = session.list_statuses(
        directory.path,
        [&](const PoolEntry& entry, const PoolStatus& status) {
          ++directory.left;
          const std::optional<std::uint64_t> since = parse_pool_trash_name(entry.name);
          if (!since || status.kind == PoolKind::kDirectory) return true;
          listing.tells_taken = listing.tells_taken || status.taken > 0;
          listing.files.push_back({.path = directory.path + "/" + std::string(entry.name),
                                   .directory = i,
                                   .fileid = status.fileid,
                                   .since = std::min(*since, latest),
                                   .said = *since,
                                   .size = status.size,
                                   .taken = status.taken});
          return listing.files.size() < kMostSeen;
        },
        deadline);
    if (!listed.ok()) {
      if (!has_gone(listed.error()) && listed.error().code != ENOTDIR) return listed.error();
      directory.left = 1;  // by hand: it is no directory of ours
    }
    if (listing.files.size() >= kMostSeen) {
      // What is behind it was not looked at.
      for (std::size_t rest = i; rest < listing.directories.size(); ++rest)
        ++listing.directories[rest].left;
      break;
    }
  }
  std::sort(listing.files.begin(), listing.files.end());
  return listing;
}

// The checksums of a file whose time is over, if they are its own, and then the file: a server gives the number of a removed
// file to the next one, whose checksums would stand there.
Result<void> remove_trash(PoolSession& session, const std::string& path, Deadline deadline) {
  const Result<PoolStatus> status = session.status(path, deadline);
  if (!status.ok() && has_gone(status.error())) return {};
  if (!status.ok()) return status.error();
  if (status->kind == PoolKind::kDirectory) return {};  // nobody of us has put it there
  // Else it stays under another name.
  if (status->nlink <= 1) {
    const Result<std::optional<PoolSums>> sums = find_sums(session, *status, deadline);
    const bool is_useless = !sums.ok() && sums.error().code == EILSEQ;
    if (!sums.ok() && !is_useless) return sums.error();
    if (is_useless || *sums)
      TRY(remove_if_there(session, pool_sums_path(status->fileid), deadline));
  }
  return remove_if_there(session, path, deadline);
}

std::uint64_t seconds_of(UnixNanos time) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(time, 0) / kNanosPerSecond);
}

// Of the files that are left. The new names are of a node that is none, so that they are nobody else's.
Result<void> rename_to_now(PoolSession& session, TrashListing& listing, UnixNanos now,
                           std::size_t most, const Allowance& allowance, TrashSwept& swept,
                           Deadline deadline) {
  const Uuid names = random_uuid();
  for (const TrashFile& file : listing.files) {
    if (file.said == file.since || file.is_removed) continue;
    if (swept.renamed >= most || allowance.is_used_up()) {
      swept.all = false;
      return {};
    }
    const Result<PoolStatus> put =
        put_into_trash(session, file.path, file.fileid, now, names, swept.renamed, deadline);
    if (!put.ok() && is_of_server(put.error())) return put.error();
    // One that cannot be renamed, or that another node has taken, does not keep the others.
    if (!put.ok()) continue;
    --listing.directories[file.directory].left;
    ++swept.renamed;
  }
  return {};
}

}  // namespace

void make_trash_directories(PoolSession& session, UnixNanos now, Deadline deadline) {
  for (const std::string& path :
       {pool_trash_path(now, Uuid{}, 0), pool_trash_path(now + kHour, Uuid{}, 0),
        pool_spare_trash_path(now, Uuid{}, 0)})
    static_cast<void>(make_directories(session, split_pool_path(path).first, deadline).ok());
}

Result<PoolStatus> put_into_trash(PoolSession& session, std::string_view path,
                                  std::uint64_t fileid, UnixNanos now, const Uuid& node,
                                  std::uint64_t number, Deadline deadline) {
  if (TRY(session.status(path, deadline)).fileid != fileid)
    return fail(ESTALE, "pool: another file stands there");
  std::string trash = pool_trash_path(now, node, number);
  Result<void> put = below(
      session, trash, [&] { return session.rename(path, trash, deadline); }, deadline);
  if (!put.ok() && has_no_room(put.error())) {
    trash = pool_spare_trash_path(now, node, number);
    put = session.rename(path, trash, deadline);
  }
  TRY(put);
  PoolStatus moved = TRY(session.status(trash, deadline));
  if (moved.fileid == fileid) return moved;
  // Replaced in between. Where its name was taken again meanwhile, that one stays.
  const PoolFilePtr other = TRY(session.open(trash, deadline));
  const Result<void> back = session.link(*other, path, deadline);
  if (!back.ok() && back.error().code != EEXIST) return back.error();
  TRY(remove_if_there(session, trash, deadline));
  return fail(ESTALE, "pool: another file stands there");
}

Result<TrashSwept> sweep_trash(PoolSession& session, const TrashRule& rule, std::size_t most,
                               Deadline deadline) {
  const std::uint64_t limit = seconds_of(rule.before);
  const std::uint64_t latest =
      seconds_of(rule.now > INT64_MAX - kMostAhead ? INT64_MAX : rule.now + kMostAhead);
  const Allowance allowance(deadline);
  TrashListing listing = TRY(list_trash(session, latest, deadline));
  TrashSwept swept;
  for (const TrashFile& file : listing.files) {
    ++swept.left.files;
    swept.left.bytes += listing.bytes_of(file);
  }
  for (TrashFile& file : listing.files) {
    const bool is_too_much =
        swept.left.files > rule.most.files || swept.left.bytes > rule.most.bytes;
    if (file.since >= limit && !is_too_much) break;
    if (swept.removed.files >= most || allowance.is_used_up()) {
      swept.all = false;
      break;
    }
    const Result<void> removed = remove_trash(session, file.path, deadline);
    if (!removed.ok() && is_of_server(removed.error())) return removed.error();
    // One that cannot be removed does not keep the others.
    if (!removed.ok()) continue;
    file.is_removed = true;
    --listing.directories[file.directory].left;
    const std::uint64_t bytes = listing.bytes_of(file);
    ++swept.removed.files;
    swept.removed.bytes += bytes;
    --swept.left.files;
    swept.left.bytes -= bytes;
  }
  if (rule.renames)
    TRY(rename_to_now(session, listing, rule.now, most, allowance, swept, deadline));
  // Those that files may still come to stay: a full pool has no room for others.
  for (const TrashDirectory& directory : listing.directories)
    if (directory.left == 0 && directory.hour &&
        (*directory.hour < limit / 3600 || *directory.hour > latest / 3600 + 1))
      static_cast<void>(session.remove_directory(directory.path, deadline).ok());
  return swept;
}

}  // namespace kvcachefs
