#include "backend/pool/pool_sweep.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "backend/pool/pool_path.h"
#include "backend/pool/pool_transfer.h"

namespace kvcachefs {
namespace {

// Of one directory that are looked at in one call.
constexpr std::size_t kMostListed = 65'536;
constexpr std::int64_t kHour = 3600 * kNanosPerSecond;

bool is_gone(const Error& error) noexcept {
  return error.code == ENOENT || error.code == ESTALE;
}

bool is_full(const Error& error) noexcept {
  return error.code == ENOSPC || error.code == EDQUOT;
}

bool is_no_directory(const Error& error) noexcept {
  return error.code == ENOTDIR || is_gone(error);
}

// The server, or the way to it, rather than a file.
bool is_of_pool(const Error& error) noexcept {
  return error.code == ETIMEDOUT || error.code == ENOTCONN || error.code == EROFS;
}

// What takes longer goes on with the next call, rather than that this one takes the pool for dead.
class Allowance {
 public:
  explicit Allowance(Deadline deadline) {
    const auto now = std::chrono::steady_clock::now();
    until_ = now + (deadline - now) / 2;
  }
  [[nodiscard]] bool is_used_up() const { return std::chrono::steady_clock::now() >= until_; }

 private:
  Deadline until_;
};

std::string temporaries_of(const Uuid& node) {
  return std::string(split_pool_path(pool_temporary_path(node, 0)).first);
}

// Empty where no directory stands.
Result<std::vector<std::string>> list_some(PoolSession& session, const std::string& directory,
                                           Deadline deadline) {
  std::vector<std::string> found;
  const Result<void> listed = session.list(
      directory,
      [&](const PoolEntry& entry) {
        found.emplace_back(entry.name);
        return found.size() < kMostListed;
      },
      deadline);
  if (!listed.ok() && !is_no_directory(listed.error())) return listed.error();
  return found;
}

// The checksums of a file whose time is over, if they are its own, and then the file: a server gives the number of a removed
// file to the next one, whose checksums would stand there.
Result<void> remove_trash(PoolSession& session, const std::string& path, Deadline deadline) {
  const Result<PoolStatus> status = session.status(path, deadline);
  if (!status.ok() && is_gone(status.error())) return {};
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

}  // namespace

void make_trash_directories(PoolSession& session, UnixNanos now, Deadline deadline) {
  for (const std::string& path :
       {pool_trash_path(now, Uuid{}, 0), pool_trash_path(now + kHour, Uuid{}, 0),
        pool_spare_trash_path(now, Uuid{}, 0)})
    static_cast<void>(make_directories(session, split_pool_path(path).first, deadline).ok());
}

Result<void> find_sums_directories(PoolSession& session, Deadline deadline) {
  const Allowance allowance(deadline);
  std::set<std::string> missing;
  for (std::uint64_t fileid = 0; fileid < kPoolSumsDirectories; ++fileid)
    missing.emplace(split_pool_path(pool_sums_path(fileid)).first);
  const std::string sums(split_pool_path(*missing.begin()).first);
  TRY(session.list_statuses(
      sums,
      [&](const PoolEntry& entry, const PoolStatus&) {
        missing.erase(sums + "/" + std::string(entry.name));
        return true;
      },
      deadline));
  for (const std::string& directory : missing) {
    if (allowance.is_used_up()) break;
    TRY(make_directories(session, directory, deadline));
  }
  return {};
}

Result<void> put_into_trash(PoolSession& session, std::string_view path, std::uint64_t fileid,
                            UnixNanos now, const Uuid& node, std::uint64_t number,
                            Deadline deadline) {
  if (TRY(session.status(path, deadline)).fileid != fileid)
    return fail(ESTALE, "pool: another file stands there");
  std::string trash = pool_trash_path(now, node, number);
  Result<void> put = session.rename(path, trash, deadline);
  if (!put.ok() && put.error().code == ENOENT) {
    put = make_directories(session, split_pool_path(trash).first, deadline);
    if (put.ok()) put = session.rename(path, trash, deadline);
  }
  if (!put.ok() && is_full(put.error())) {
    trash = pool_spare_trash_path(now, node, number);
    put = session.rename(path, trash, deadline);
  }
  TRY(put);
  const PoolStatus moved = TRY(session.status(trash, deadline));
  if (moved.fileid == fileid) return {};
  // Replaced in between. Where its name was taken again meanwhile, that one stays.
  const PoolFilePtr other = TRY(session.open(trash, deadline));
  const Result<void> back = session.link(*other, path, deadline);
  if (!back.ok() && back.error().code != EEXIST) return back;
  TRY(remove_if_there(session, trash, deadline));
  return fail(ESTALE, "pool: another file stands there");
}

Result<Swept> sweep_trash(PoolSession& session, UnixNanos before, std::size_t most,
                          Deadline deadline) {
  const std::string trash = pool_service_path("trash");
  const auto limit =
      static_cast<std::uint64_t>(std::max<std::int64_t>(before, 0) / kNanosPerSecond);
  const Allowance allowance(deadline);
  Swept swept;
  for (const std::string& hour : TRY(list_some(session, trash, deadline))) {
    const std::string directory = trash + "/" + hour;
    bool empty = true;
    for (const std::string& file : TRY(list_some(session, directory, deadline))) {
      const std::optional<std::uint64_t> since = parse_pool_trash_name(file);
      if (!since || *since >= limit) {
        empty = false;
        continue;
      }
      if (swept.files >= most || allowance.is_used_up()) {
        swept.all = false;
        return swept;
      }
      const Result<void> removed = remove_trash(session, directory + "/" + file, deadline);
      if (!removed.ok() && is_of_pool(removed.error())) return removed.error();
      // One that cannot be removed does not keep the others.
      if (removed.ok()) ++swept.files;
      if (!removed.ok()) empty = false;
    }
    // Those that files may still come to stay: a full pool has no room for others.
    const auto number = parse_pool_trash_hour(hour);
    if (empty && number && *number < limit / 3600)
      static_cast<void>(session.remove_directory(directory, deadline).ok());
  }
  return swept;
}

Result<Swept> sweep_temporaries(PoolSession& session, const Uuid& node, UnixNanos before,
                                std::size_t most, Deadline deadline) {
  const std::string directory = temporaries_of(node);
  const Allowance allowance(deadline);
  std::vector<std::string> old;
  bool all = true;
  const Result<void> listed = session.list_statuses(
      directory,
      [&](const PoolEntry& entry, const PoolStatus& status) {
        if (status.kind == PoolKind::kDirectory || status.mtime >= before) return true;
        all = old.size() < most;
        if (all) old.emplace_back(entry.name);
        return all;
      },
      deadline);
  if (!listed.ok() && !is_no_directory(listed.error())) return listed.error();
  Swept swept{.files = 0, .all = all};
  for (const std::string& file : old) {
    if (allowance.is_used_up()) return Swept{.files = swept.files, .all = false};
    TRY(remove_if_there(session, directory + "/" + file, deadline));
    ++swept.files;
  }
  return swept;
}

Result<Swept> sweep_node(PoolSession& session, const Uuid& node, UnixNanos beaten,
                         std::size_t most, Deadline deadline) {
  const Result<PoolStatus> heartbeat = session.status(pool_node_path(node), deadline);
  if (!heartbeat.ok() && !is_gone(heartbeat.error())) return heartbeat.error();
  if (heartbeat.ok() && heartbeat->mtime != beaten) return Swept{};
  TRY(sweep_logs(session, node, UINT64_MAX, deadline));
  const Swept swept = TRY(sweep_temporaries(session, node, INT64_MAX, most, deadline));
  if (!swept.all) return swept;
  static_cast<void>(session.remove_directory(temporaries_of(node), deadline).ok());
  TRY(remove_if_there(session, pool_node_path(node), deadline));
  return swept;
}

Result<void> sweep_logs(PoolSession& session, const Uuid& node, std::uint64_t below,
                        Deadline deadline) {
  const std::string directory(split_pool_path(pool_log_path(node, 0)).first);
  for (const std::string& file : TRY(list_some(session, directory, deadline))) {
    const std::optional<std::uint64_t> log = parse_pool_log_name(file, node);
    if (log && *log < below) TRY(remove_if_there(session, directory + "/" + file, deadline));
  }
  return {};
}

std::uint64_t pool_share(std::vector<Uuid> nodes) {
  std::sort(nodes.begin(), nodes.end());
  std::string text;
  for (const Uuid& node : nodes) text += format_uuid(node);
  return pool_path_hash(text);
}

const Uuid& owner_of(std::string_view top, const std::vector<Uuid>& living) noexcept {
  const auto weight = [&](const Uuid& node) {
    std::string key(reinterpret_cast<const char*>(node.data()), node.size());
    key += top;
    return std::pair(pool_path_hash(key), node);
  };
  return *std::max_element(living.begin(), living.end(),
                           [&](const Uuid& a, const Uuid& b) { return weight(a) < weight(b); });
}

}  // namespace kvcachefs
