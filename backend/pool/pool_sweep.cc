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

bool is_gone(const Error& error) noexcept {
  return error.code == ENOENT || error.code == ESTALE;
}

bool is_no_directory(const Error& error) noexcept {
  return error.code == ENOTDIR || is_gone(error);
}

std::string temporaries_of(const Uuid& node) {
  return std::string(split_pool_path(pool_temporary_path(node, 0)).first);
}

}  // namespace

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

Result<Swept> sweep_temporaries(PoolSession& session, const Uuid& node,
                                const TimesThatGo& times, std::size_t most, Deadline deadline) {
  const std::string directory = temporaries_of(node);
  const Allowance allowance(deadline);
  std::vector<std::string> old;
  bool all = true;
  const Result<void> listed = session.list_statuses(
      directory,
      [&](const PoolEntry& entry, const PoolStatus& status) {
        const bool goes = status.mtime < times.before || status.mtime > times.after;
        if (status.kind == PoolKind::kDirectory || !goes) return true;
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
  const Swept swept = TRY(sweep_temporaries(session, node, TimesThatGo::all(), most, deadline));
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
