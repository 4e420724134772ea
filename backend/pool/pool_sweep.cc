#include "backend/pool/pool_sweep.h"

#include <algorithm>
#include <utility>

#include "backend/pool/pool_path.h"
#include "backend/pool/pool_transfer.h"

namespace kvcachefs {
namespace {

// Of one directory that are looked at in one call.
constexpr std::size_t kMostListed = 65'536;

bool is_gone(const Error& error) noexcept {
  return error.code == ENOENT || error.code == ESTALE;
}

struct Listed {
  std::string name;
  std::uint64_t fileid = 0;
};

// Empty where no directory stands.
Result<std::vector<Listed>> list_some(PoolSession& session, const std::string& directory,
                                      Deadline deadline) {
  std::vector<Listed> found;
  const Result<void> listed = session.list(
      directory,
      [&](const PoolEntry& entry) {
        found.push_back({.name = std::string(entry.name), .fileid = entry.fileid});
        return found.size() < kMostListed;
      },
      deadline);
  const bool is_none = !listed.ok() && listed.error().code == ENOTDIR;
  if (!listed.ok() && !is_none && !is_gone(listed.error())) return listed.error();
  return found;
}

Result<void> remove_if_there(PoolSession& session, const std::string& path, Deadline deadline) {
  const Result<void> removed = session.remove(path, deadline);
  if (!removed.ok() && !is_gone(removed.error())) return removed;
  return {};
}

}  // namespace

Result<void> put_into_trash(PoolSession& session, std::string_view path, std::uint64_t fileid,
                            UnixNanos now, const Uuid& node, std::uint64_t number,
                            Deadline deadline) {
  const std::string trash = pool_trash_path(now, node, number);
  TRY(make_directories(session, split_pool_path(trash).first, deadline));
  if (TRY(session.status(path, deadline)).fileid != fileid)
    return fail(ESTALE, "pool: another file stands there");
  TRY(session.rename(path, trash, deadline));
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
  const std::string trash = std::string(kPoolService) + "/trash";
  const auto limit =
      static_cast<std::uint64_t>(std::max<std::int64_t>(before, 0) / kNanosPerSecond);
  Swept swept;
  for (const Listed& hour : TRY(list_some(session, trash, deadline))) {
    const std::string directory = trash + "/" + hour.name;
    bool empty = true;
    for (const Listed& file : TRY(list_some(session, directory, deadline))) {
      const std::optional<std::uint64_t> since = parse_pool_trash_name(file.name);
      if (!since || *since >= limit) {
        empty = false;
        continue;
      }
      if (swept.files >= most) {
        swept.all = false;
        return swept;
      }
      TRY(remove_if_there(session, directory + "/" + file.name, deadline));
      TRY(remove_if_there(session, pool_sums_path(file.fileid), deadline));
      ++swept.files;
    }
    // Somebody may be putting a file there: then it stays.
    if (empty) static_cast<void>(session.remove_directory(directory, deadline).ok());
  }
  return swept;
}

Result<Swept> sweep_temporaries(PoolSession& session, const Uuid& node, std::size_t most,
                                Deadline deadline) {
  const std::string mine = pool_temporary_path(node, 0);
  const std::string directory(split_pool_path(mine).first);
  Swept swept;
  for (const Listed& file : TRY(list_some(session, directory, deadline))) {
    if (swept.files >= most) {
      swept.all = false;
      return swept;
    }
    TRY(remove_if_there(session, directory + "/" + file.name, deadline));
    ++swept.files;
  }
  static_cast<void>(session.remove_directory(directory, deadline).ok());
  return swept;
}

Result<void> sweep_logs(PoolSession& session, const Uuid& node, std::uint64_t below,
                        Deadline deadline) {
  const std::string directory(split_pool_path(pool_log_path(node, 0)).first);
  for (const Listed& file : TRY(list_some(session, directory, deadline))) {
    const std::optional<std::uint64_t> log = parse_pool_log_name(file.name, node);
    if (log && *log < below)
      TRY(remove_if_there(session, directory + "/" + file.name, deadline));
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
