#include "fs/explain/explain.h"

#include <sys/stat.h>

#include <algorithm>

#include "fs/known/order_source.h"
#include "fs/life/pool_standing.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"
#include "fs/synthetic/tree.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kNames = 64;  // of a file with many, as Knowledge::treatment() looks at
constexpr std::size_t kVictims = 1024;

// The nearest directory, from this one up, that was told what holds for the owner's files; 0:
// none was.
Result<InodeNumber> nearest_told(Catalog& catalog, InodeNumber directory,
                                 std::string_view xattr, std::uint32_t owner) {
  constexpr int kDeepest = 4096;
  InodeNumber at = directory;
  for (int depth = 0; depth < kDeepest; ++depth) {
    if (TRY(catalog.find_xattr(at, xattr))) {
      const auto record = TRY(catalog.find_inode(at));
      if (record && may_tell(record->uid, owner)) return at;
    }
    if (at == kRootInode) break;
    const auto above = TRY(catalog.list_links(at, 1));
    if (above.empty()) break;
    at = above.front().first;
  }
  return InodeNumber{0};
}

// Who told an inode what holds for it: itself, or one above it that says the same.
template <class Says>
Result<std::optional<std::string>> told_by(Catalog& catalog, const Explanation& about,
                                           std::string_view xattr, const Says& says) {
  const InodeNumber inode = about.inode;
  if (TRY(catalog.find_xattr(inode, xattr)))
    return std::optional{TRY(first_path(catalog, inode))};
  for (const auto& [directory, name] : TRY(catalog.list_links(inode, kNames))) {
    const InodeNumber from = TRY(nearest_told(catalog, directory, xattr, about.record.uid));
    if (from != 0 && says(TRY(own_told(catalog, from))))
      return std::optional{TRY(first_path(catalog, from))};
  }
  return std::optional<std::string>{};
}

Result<void> add_policy(Core& core, Explanation& out) {
  if (S_ISREG(out.record.mode)) {
    Treatment treatment = TRY(core.knowledge.treatment(out.inode, out.record));
    out.is_beyond_share = stays_as_cache(core, out.record, treatment);
    out.policy = treatment.policy;
    out.by = treatment.by;
    out.ttl = treatment.ttl;
    if (out.is_beyond_share) treatment.policy = FilePolicy::kCache;
    out.treatment = treatment;
  } else if (S_ISDIR(out.record.mode)) {
    const Told told = TRY(core.knowledge.told_above(out.inode, out.record.uid));
    out.policy = told.policy;
    out.ttl = told.ttl;
  }
  const bool is_told = !out.by || *out.by >= PolicyBy::kDirectory;
  if (out.policy && is_told)
    out.policy_from = TRY(told_by(core.catalog, out, kPolicyXattr,
                                  [&](const Told& told) { return told.policy == out.policy; }));
  if (out.ttl)
    out.ttl_from = TRY(told_by(core.catalog, out, kTtlXattr,
                               [&](const Told& told) { return told.ttl == out.ttl; }));
  return {};
}

// How many go before it.
std::optional<std::size_t> count_before(order::Learner& learner, std::uint64_t block) {
  const auto key = learner.eviction_key(block);
  if (!key) return std::nullopt;
  std::size_t before = 0;
  std::optional<order::Victim> last;
  while (before < kMostBefore) {
    const std::vector<order::Victim> victims = learner.victims(kVictims, last);
    for (const order::Victim& victim : victims) {
      if (victim.name == block || victim.key > *key) return before;
      ++before;
    }
    if (victims.size() < kVictims) return before;
    last = victims.back();
  }
  return std::nullopt;
}

Result<void> add_block(Core& core, const NameOf& name, Explanation& out) {
  order::Learner& learner = core.knowledge.learner();
  LearnerOrder order(core.catalog, learner);
  Describer describer(core.catalog, order);
  out.block = TRY(describer.by_name(name.directory, name.name));
  // The entry of a session is a link to a block.
  if (!out.block) out.block = TRY(describer.by_inode(out.inode));
  if (!out.block) return {};
  const std::uint64_t block = out.block->block;
  BlockPlace place;
  if (const auto parent = learner.parent(block)) {
    place.has_parent = true;
    place.is_firm = parent->firm;
    place.parent = TRY(describer.by_block(parent->name));
  }
  place.children = learner.children(block, kMostChildren + 1).size();
  place.more_children = place.children > kMostChildren;
  place.children = std::min(place.children, kMostChildren);
  place.goes_after = count_before(learner, block);
  out.place = std::move(place);
  return {};
}

Result<void> add_file(Core& core, const NameOf& name, Inode& inode, Explanation& out) {
  bool is_queued = false;
  {
    const std::lock_guard lock(inode.mutex);
    is_queued = TRY(hides_older(core, inode)) != HidesOlder::kNo;
    out.opens = inode.opens;
    out.writers = inode.writers;
    const bool is_remote = inode.record.state == DataState::kRemote;
    Tier* const tier = is_remote ? nullptr : TRY(core.devices->of(inode));
    out.device = is_remote ? "the pool" : tier->info().path;
    const Result<struct stat> backing =
        is_remote ? fail(ENOENT, "on the pool") : tier->status(inode.record.object);
    out.is_missing = !is_remote && !backing.ok();
    if (is_remote) {
      out.size = inode.record.stamp.size;
      out.written = inode.record.stamp.mtime;
    }
    if (backing.ok()) {
      constexpr std::uint64_t kStatBlock = 512;
      out.size = static_cast<std::uint64_t>(backing->st_size);
      out.allocated = static_cast<std::uint64_t>(backing->st_blocks) * kStatBlock;
      out.written = stamp_of(*backing).mtime;
    }
  }
  out.obstacle = obstacle_of(out.record, out.opens, out.treatment);
  if (out.obstacle == Obstacle::kNone && core.budget.is_leased(out.inode))
    out.obstacle = Obstacle::kLeased;
  if (out.obstacle == Obstacle::kNone && is_queued) out.obstacle = Obstacle::kQueued;
  TRY(add_block(core, name, out));
  if (out.ttl) {
    const UnixNanos used =
        out.block && out.block->last_use ? *out.block->last_use : out.written;
    out.expires = std::max(used, out.written) +
                  std::chrono::duration_cast<std::chrono::nanoseconds>(*out.ttl).count();
  }
  return {};
}

}  // namespace

Result<std::optional<NameOf>> resolve(Catalog& catalog, std::string_view path) {
  NameOf at{.directory = 0, .name = {}, .inode = kRootInode};
  while (!path.empty()) {
    const std::size_t end = path.find('/');
    const std::string_view name = path.substr(0, end);
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
    if (name.empty()) continue;
    const auto dentry = TRY(catalog.find_dentry(at.inode, name));
    if (!dentry) return std::optional<NameOf>{};
    at = {.directory = at.inode, .name = std::string(name), .inode = dentry->inode};
  }
  return std::optional{std::move(at)};
}

Result<Explanation> explain(Core& core, std::string_view path) {
  while (path.starts_with('/')) path.remove_prefix(1);
  while (path.ends_with('/')) path.remove_suffix(1);
  Explanation out;
  out.path = path;
  const auto name = TRY(resolve(core.catalog, path));
  if (!name) {
    if (SyntheticTree::is_entrance(kRootInode, path.substr(0, path.find('/'))))
      return fail(EINVAL, "a name of .kvcachefs, which is made up when somebody looks");
    out.dropped = core.drops.find(path);
    return out;
  }
  const InodePtr inode = TRY(core.table.get(name->inode));
  out.found = true;
  out.inode = inode->number;
  {
    const std::lock_guard lock(inode->mutex);
    out.record = inode->record;
  }
  TRY(add_policy(core, out));
  if (inode->is_file()) TRY(add_file(core, *name, *inode, out));
  return out;
}

}  // namespace kvcachefs
