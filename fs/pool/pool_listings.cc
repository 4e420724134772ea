#include "fs/pool/pool_listings.h"

#include <dirent.h>

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/pool/pool_format.h"

namespace kvcachefs {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kListTries = 3;
constexpr std::size_t kToldEvery = 256;  // names

// Once more.
bool may_go_well(int code) noexcept {
  return code != ENOENT && code != ENOTDIR && code != EACCES && code != ETIMEDOUT &&
         code != ENOTCONN;
}

std::string path_below(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

}  // namespace

std::optional<std::string> PoolListings::path_of(InodeNumber directory) {
  if (directory == kRootInode) return std::string{};
  const auto shared = shared_name_of(core_.catalog, core_.knowledge, directory);
  if (!shared.ok() || !*shared) return std::nullopt;
  return (*shared)->path;
}

bool PoolListings::is_wanted(InodeNumber directory) {
  if (!service_.is_usable()) return false;
  const auto path = path_of(directory);
  return path && !service_.is_known_missing(*path);
}

// Of those taken away here that the pool may still have. Their tombstones may be gone by the time at which the listing
// comes to them.
Result<std::set<std::string>> PoolListings::hidden_in(const std::string& path) {
  constexpr std::size_t kBatch = 1024;
  const std::string below = path.empty() ? path : path + "/";
  std::set<std::string> names;
  std::string after = below;
  while (names.size() < kMostNames) {
    const auto batch = TRY(core_.catalog.list_tombstones(after, kBatch));
    for (const auto& [name, tombstone] : batch) {
      if (!name.starts_with(below)) return names;
      if (name.find('/', below.size()) == std::string::npos)
        names.insert(name.substr(below.size()));
    }
    if (batch.size() < kBatch) break;
    after = batch.back().first;
  }
  return names;
}

// Shared by who waits for a listing and the thread that asks for it, which may be stuck.
struct PoolListings::Asked {
  std::mutex mutex;
  std::condition_variable changed;
  SteadyClock::time_point progress = SteadyClock::now();
  std::optional<Result<std::vector<Name>>> answer;
};

Result<std::vector<PoolListings::Name>> PoolListings::list_once(PoolSession& session,
                                                                const std::string& path,
                                                                Asked& asked,
                                                                Deadline deadline) {
  std::vector<Name> found;
  TRY(session.list(
      path,
      [&](const PoolEntry& entry) {
        // A lookup would not find it.
        if (entry.is_other) return true;
        found.push_back({.cookie = kFirstCookie | pool_path_hash(entry.name) >> 2,
                         .fileid = entry.fileid,
                         .name = std::string(entry.name)});
        if (found.size() % kToldEvery == 1) {
          const std::lock_guard lock(asked.mutex);
          asked.progress = SteadyClock::now();
        }
        return found.size() < kMostNames;
      },
      deadline));
  return found;
}

Result<std::vector<PoolListings::Name>> PoolListings::ask(const std::string& path) {
  const auto asked = std::make_shared<Asked>();
  service_.client().submit<std::vector<Name>>(
      PoolClass::kLoad, SteadyClock::now() + kDeadline,
      [path, asked](PoolSession& session, Deadline deadline) -> Result<std::vector<Name>> {
        Result<std::vector<Name>> found = list_once(session, path, *asked, deadline);
        // A server may lose its place in a directory that is being changed.
        for (int tries = 1;
             tries < kListTries && !found.ok() && may_go_well(found.error().code); ++tries)
          found = list_once(session, path, *asked, deadline);
        return found;
      },
      [asked](Result<std::vector<Name>> answer) {
        const std::lock_guard lock(asked->mutex);
        asked->answer.emplace(std::move(answer));
        asked->changed.notify_one();
      });
  std::unique_lock lock(asked->mutex);
  while (!asked->answer) {
    const auto until = asked->progress + kNoProgress;
    if (SteadyClock::now() >= until) return fail(ETIMEDOUT, "pool: a listing does not go on");
    asked->changed.wait_until(lock, until);
  }
  return std::move(*asked->answer);
}

// nullopt: it is not to be asked for. Where the pool does not say there are no names.
Result<std::optional<PoolListings::Listing>> PoolListings::ask_for(InodeNumber directory) {
  const std::optional<std::string> path = path_of(directory);
  if (!path || !is_wanted(directory)) return std::optional<Listing>{};
  const std::uint64_t end = core_.catalog.coming_id();
  std::set<std::string> hidden = TRY(hidden_in(*path));
  Result<std::vector<Name>> names = ask(*path);
  if (!names.ok()) {
    if (names.error().code != ENOENT && names.error().code != ENOTDIR)
      log_info("pool: not listed path=\"{}\" step=\"{}\" errno={}", *path, names.error().what,
               names.error().code);
    names = std::vector<Name>{};
  }
  return std::optional(Listing{.directory = directory,
                               .path = *path,
                               .hidden = std::move(hidden),
                               .names = std::move(*names),
                               .end = end});
}

void PoolListings::begin(InodeNumber directory) {
  Result<std::optional<Listing>> asked = ask_for(directory);
  if (!asked.ok() || !*asked) return;
  std::vector<Name>& names = (*asked)->names;
  if (names.size() == kMostNames)
    log_warn("pool: path=\"{}\" has more names than a listing shows", (*asked)->path);
  std::sort(names.begin(), names.end(),
            [](const Name& a, const Name& b) { return a.cookie < b.cookie; });
  auto listing = std::make_shared<const Listing>(std::move(**asked));
  forget(directory);
  const std::lock_guard lock(mutex_);
  if (!listing->names.empty()) kept_.push_back(std::move(listing));
  const auto names_kept = [this] {
    std::size_t kept = 0;
    for (const auto& one : kept_) kept += one->names.size();
    return kept;
  };
  while (kept_.size() > kMostKept || (kept_.size() > 1 && names_kept() > kMostNames))
    kept_.pop_front();
}

Result<bool> PoolListings::has_names(InodeNumber directory) {
  const std::optional<Listing> listing = TRY(ask_for(directory));
  if (!listing) return false;
  for (const Name& name : listing->names)
    if (TRY(is_shown(*listing, name))) return true;
  return false;
}

std::optional<InodeNumber> PoolListings::directory_at(InodeNumber parent, std::string_view name,
                                                      Here here) {
  const auto dentry = core_.catalog.find_dentry(parent, name);
  if (!dentry.ok() || !*dentry || (*dentry)->type != DT_DIR) return std::nullopt;
  const InodeNumber directory = (*dentry)->inode;
  if (here == Here::kEmpty) {
    const Result<bool> is_empty = core_.catalog.directory_empty(directory);
    if (!is_empty.ok() || !*is_empty) return std::nullopt;
  }
  return is_wanted(directory) ? std::optional(directory) : std::nullopt;
}

void PoolListings::look_before_move(InodeNumber parent, std::string_view name,
                                    InodeNumber new_parent, std::string_view new_name) {
  look_whether_empty(parent, name);
  look_whether_empty(new_parent, new_name);
}

void PoolListings::look_whether_empty(InodeNumber parent, std::string_view name) {
  const std::optional<InodeNumber> directory = directory_at(parent, name, Here::kAny);
  if (!directory) return;
  const Result<InodePtr> inode = core_.table.get(*directory);
  const std::optional<std::string> path = path_of(*directory);
  if (!inode.ok() || !path) return;
  const Result<bool> is_empty = service_.client().call<bool>(
      PoolClass::kDemand, SteadyClock::now() + kNoProgress,
      [path = *path](PoolSession& session, Deadline deadline) -> Result<bool> {
        bool found = false;
        TRY(session.list(
            path, [&found](const PoolEntry&) { return !(found = true); }, deadline));
        return !found;
      });
  const bool is_missing = !is_empty.ok() && is_empty.error().code == ENOENT;
  if (is_missing || (is_empty.ok() && *is_empty))
    (*inode)->empty_on_pool.store(monotonic_now(), std::memory_order_relaxed);
}

void PoolListings::forget(InodeNumber directory) {
  const std::lock_guard lock(mutex_);
  kept_.erase(std::remove_if(kept_.begin(), kept_.end(),
                             [&](const auto& old) { return old->directory == directory; }),
              kept_.end());
}

std::uint64_t PoolListings::end_of(InodeNumber directory) {
  const std::shared_ptr<const Listing> listing = find(directory);
  return listing == nullptr ? UINT64_MAX : listing->end;
}

std::shared_ptr<const PoolListings::Listing> PoolListings::find(InodeNumber directory) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(kept_.begin(), kept_.end(), [&](const auto& listing) {
    return listing->directory == directory;
  });
  return at == kept_.end() ? nullptr : *at;
}

// Who looks names up while he lists them makes them names of here.
Result<bool> PoolListings::is_shown(const Listing& listing, const Name& name) {
  const auto dentry = TRY(core_.catalog.find_dentry(listing.directory, name.name));
  if (dentry) return dentry->cookie >= listing.end;
  if (listing.hidden.count(name.name) > 0 ||
      !shared_name(core_.knowledge, listing.directory, name.name))
    return false;
  const auto tombstone = TRY(core_.catalog.find_tombstone(path_below(listing.path, name.name)));
  return !tombstone || !tombstone->hides(name.fileid);
}

Result<void> PoolListings::list(InodeNumber directory, std::uint64_t after,
                                const std::function<bool(const ListedEntry&)>& visit) {
  const std::shared_ptr<const Listing> listing = find(directory);
  if (listing == nullptr) return {};
  auto at = std::upper_bound(
      listing->names.begin(), listing->names.end(), after,
      [](std::uint64_t cookie, const Name& name) { return cookie < name.cookie; });
  for (; at != listing->names.end(); ++at) {
    if (!TRY(is_shown(*listing, *at))) continue;
    // What it is, and its number here, a lookup tells.
    const ListedEntry entry{.entry = {.cookie = at->cookie,
                                      .inode = kFirstCookie | at->fileid,
                                      .type = DT_UNKNOWN,
                                      .name = at->name},
                            .plus = {}};
    if (!visit(entry)) return {};
  }
  return {};
}

}  // namespace kvcachefs
