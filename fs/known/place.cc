#include "fs/known/place.h"

#include <utility>
#include <vector>

#include "fs/known/file_policy.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kLongestPlace = 4096;
// That a thread which refuses to wait takes.
constexpr std::size_t kFewSteps = 64;

// One step up from a directory: where it hangs, and what it was told itself.
struct Step {
  InodeNumber parent = 0;  // 0: the root, or a directory without a name
  std::string name;
  std::optional<Runtime> told;
  ToldOnPath<FilePolicy> policy;
  ToldOnPath<std::chrono::seconds> ttl;
  std::optional<DirectIo> direct_io;
  std::optional<PoolWrites> pool_writes;
  TenantTerms terms;
};

Result<Step> step_up(Catalog& catalog, InodeNumber directory) {
  Step step;
  // Most were told nothing.
  const std::optional<InodeRecord> record = TRY(catalog.find_inode(directory));
  if (!record) return step;
  const bool has_any = (record->flags & kInodeHasXattr) != 0;
  if (has_any && catalog.is_told()) {
    const std::optional<std::string> value = TRY(catalog.find_xattr(directory, kToldXattr));
    if (value) step.told = parse_runtime(*value);
  }
  if (has_any && catalog.is_told_policy()) {
    const Told told = TRY(own_told(catalog, directory));
    if (told.policy) step.policy.add(record->uid, *told.policy);
    if (told.ttl) step.ttl.add(record->uid, *told.ttl);
    if (const auto value = TRY(catalog.find_xattr(directory, kDirectIoXattr)))
      step.direct_io = parse_direct_io(*value);
    if (const auto value = TRY(catalog.find_xattr(directory, kPoolWritesXattr)))
      step.pool_writes = parse_pool_writes(*value);
    step.terms = TRY(own_terms(catalog, directory));
  }
  if (directory == kRootInode) return step;
  auto links = TRY(catalog.list_links(directory, 1));
  if (links.empty()) return step;
  step.parent = links.front().first;
  step.name = std::move(links.front().second);
  return step;
}

std::shared_ptr<Place> below(const std::shared_ptr<const Place>& above, const Step& step,
                             std::uint64_t age) {
  auto place = std::make_shared<Place>();
  place->is_too_long =
      above->is_too_long || above->path.size() + 1 + step.name.size() > kLongestPlace;
  if (!place->is_too_long) place->path = path_in(*above, step.name);
  place->depth = above->depth + 1;
  place->told = step.told ? step.told : above->told;
  place->policy = step.policy;
  place->policy.add(above->policy);
  place->ttl = step.ttl;
  place->ttl.add(above->ttl);
  place->direct_io = step.direct_io ? step.direct_io : above->direct_io;
  place->pool_writes = step.pool_writes ? step.pool_writes : above->pool_writes;
  place->age = age;
  return place;
}

std::shared_ptr<Place> root_place(const Step& step, std::uint64_t age) {
  auto place = std::make_shared<Place>();
  place->told = step.told;
  place->policy = step.policy;
  place->ttl = step.ttl;
  place->direct_io = step.direct_io;
  place->pool_writes = step.pool_writes;
  place->age = age;
  return place;
}

}  // namespace

bool is_below(std::string_view path, std::string_view top) noexcept {
  return top.empty() ||
         (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/'));
}

std::string path_in(const Place& place, std::string_view name) {
  std::string path;
  if (place.is_too_long) return path;
  path.reserve(place.path.size() + 1 + name.size());
  path = place.path;
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

Result<std::string> first_path(Catalog& catalog, InodeNumber inode) {
  if (inode == kRootInode) return std::string();
  const auto links = TRY(catalog.list_links(inode, 1));
  if (links.empty()) return fail(ENOENT, "no name");
  const auto place = TRY(find_place(catalog, links.front().first));
  if (place == nullptr) return fail(ENOENT, "no path");
  return path_in(*place, links.front().second);
}

std::optional<Recognized> finished_block(std::string_view path, std::optional<Runtime> told) {
  std::optional<Recognized> file = recognize(path, told);
  if (file && (file->temporary || file->kind != NameKind::kBlock)) file.reset();
  return file;
}

Result<std::shared_ptr<const Place>> find_place(Catalog& catalog, InodeNumber directory) {
  return PlaceWalk(catalog).find(directory);
}

Result<std::shared_ptr<const Place>> PlaceWalk::find(InodeNumber directory) {
  std::vector<std::pair<InodeNumber, Step>> steps;
  std::size_t length = 0;
  std::shared_ptr<const Place> place;
  for (InodeNumber at = directory;;) {
    if (const auto known = known_.find(at); known != known_.end()) {
      place = known->second;
      break;
    }
    // Of each name a slash more than there are.
    if (steps_left_ == 0 || length > kLongestPlace + 1) return std::shared_ptr<const Place>();
    --steps_left_;
    Step step = TRY(step_up(catalog_, at));
    const InodeNumber above = step.parent;
    length += step.name.size() + 1;
    steps.emplace_back(at, std::move(step));
    if (at == kRootInode) break;
    if (above == 0) return std::shared_ptr<const Place>();
    at = above;
  }
  for (auto at = steps.rbegin(); at != steps.rend(); ++at) {
    const auto& [number, step] = *at;
    place = number == kRootInode ? root_place(step, 0) : below(place, step, 0);
    if (place->is_too_long) return std::shared_ptr<const Place>();
    const auto above = static_cast<std::size_t>(steps.rend() - at) - 1;
    if (above % kKnownEvery != 0) continue;
    if (known_.size() == kMostKnown) known_.clear();
    known_.emplace(number, place);
  }
  return place;
}

std::shared_ptr<const Place> Places::kept(Inode* inode) {
  const std::lock_guard lock(inode == nullptr ? root_mutex_ : inode->place_mutex);
  return inode == nullptr ? root_ : inode->place;
}

void Places::keep(Inode* inode, std::shared_ptr<const Place> place) {
  const std::lock_guard lock(inode == nullptr ? root_mutex_ : inode->place_mutex);
  (inode == nullptr ? root_ : inode->place) = std::move(place);
}

std::uint64_t Places::new_age() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1) + 1;
}

Result<std::shared_ptr<const Place>> Places::of(InodeNumber directory) {
  auto place = TRY(at(directory));
  if (place != nullptr && place->is_too_long) place = nullptr;
  return place;
}

Result<std::shared_ptr<const Place>> Places::at(InodeNumber directory) {
  const std::uint64_t age = this->age();
  // A runtime's calls come in runs of one directory.
  struct Last {
    InodeNumber directory = 0;
    std::shared_ptr<const Place> place;
  };
  thread_local Last last;
  if (last.directory == directory && last.place->age == age) return last.place;
  std::vector<std::pair<InodePtr, Step>> path;
  std::shared_ptr<const Place> place;
  for (InodeNumber at = directory;;) {
    if (path.size() == kFewSteps && refuses_to_wait())
      return fail(kMustWait, "a directory is far below what is known");
    if (path.size() == 4 * std::size_t{kMostDepth})
      return fail(ENAMETOOLONG, "the directory lies too deep");
    InodePtr inode;
    if (at != kRootInode) inode = TRY(table_.get(at));
    place = kept(inode.get());
    if (place != nullptr && place->age == age) break;
    place = nullptr;
    Step step = TRY(step_up(catalog_, at));
    const InodeNumber above = step.parent;
    path.emplace_back(std::move(inode), std::move(step));
    if (at == kRootInode) break;
    if (above == 0) return std::shared_ptr<const Place>();
    at = above;
  }
  for (auto at = path.rbegin(); at != path.rend(); ++at) {
    const auto& [inode, step] = *at;
    const TenantSlot above = place == nullptr ? TenantSlot{0} : place->tenant;
    auto next = inode == nullptr ? root_place(step, age) : below(place, step, age);
    next->tenant = step.terms.any()
                       ? tenants_.put(inode == nullptr ? kRootInode : inode->number, step.terms)
                       : above;
    place = std::move(next);
    keep(inode.get(), place);
  }
  last = {.directory = directory, .place = place};
  return place;
}

}  // namespace kvcachefs
