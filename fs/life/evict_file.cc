#include "fs/life/evict_file.h"

#include <mutex>

#include "fs/life/drop.h"
#include "fs/life/is_mapped.h"
#include "fs/life/pool_standing.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

// The caller holds the inode's lock.
Result<Obstacle> obstacle_now(Core& core, const Inode& inode, const Treatment& treatment,
                              DropReason reason) {
  const InodeRecord& record = inode.record;
  if (!inode.is_file() || record.nlink == 0 || inode.evicting) return Obstacle::kUnwanted;
  const bool is_asked = reason == DropReason::kAsked;
  // Of what is on the pool alone only the name goes; who looks it up again asks the pool.
  const Obstacle obstacle = record.state == DataState::kRemote && !is_asked && inode.opens == 0
                                ? obstacle_by_policy(treatment)
                                : obstacle_of(record, inode.opens, treatment, !is_asked);
  if (obstacle != Obstacle::kNone) return obstacle;
  if (!is_asked && core.budget.is_leased(inode.number)) return Obstacle::kLeased;
  const HidesOlder hides = TRY(hides_older(core, inode));
  const bool may_go_last = hides == HidesOlder::kMaybe && is_eviction(reason) && !is_asked &&
                           reason != DropReason::kExpired && core.is_desperate.load();
  return hides == HidesOlder::kNo || may_go_last ? Obstacle::kNone : Obstacle::kQueued;
}

// Whether nobody has its lock just now.
bool is_free(Inode& inode) {
  return std::unique_lock(inode.mutex, std::try_to_lock).owns_lock();
}

}  // namespace

Result<Eviction> evict_file(Core& core, const InodePtr& inode, DropReason reason,
                            const std::function<bool(const SealedCopy&)>& wanted) {
  Eviction out;
  // Somebody changes it, which takes as long as its disk does: others can go as well.
  if (reason != DropReason::kAsked && !is_free(*inode)) {
    out.obstacle = Obstacle::kUnwanted;
    return out;
  }
  const Treatment treatment = TRY(note_policy(core, *inode));
  {
    const std::lock_guard lock(inode->mutex);
    out.obstacle = TRY(obstacle_now(core, *inode, treatment, reason));
    // Nothing of it would become free, and each look at it would wait.
    const bool is_silent = inode->device && core.devices->silent(*inode->device) > 0;
    if (is_silent && reason != DropReason::kAsked) out.obstacle = Obstacle::kUnwanted;
    if (out.obstacle != Obstacle::kNone) return out;
    const std::optional<SealedCopy> copy =
        inode->record.state == DataState::kRemote
            ? SealedCopy{.device = kNoDevice, .tenant = inode->tenant.load()}
            : core.budget.sealed_copy(*inode, inode->record);
    if (copy) {
      out.device = copy->device;
      out.bytes = copy->bytes;
    }
    if (wanted && (!copy || !wanted(*copy))) {
      out.obstacle = Obstacle::kUnwanted;
      return out;
    }
    const bool is_sealed = inode->record.state == DataState::kSealed;
    // A file that the daemon itself is reading may go: nobody has opened it lately, or it would
    // be leased, and the looks of every second know what was mapped before.
    const Result<bool> mapped = is_sealed && copy ? is_mapped(core, *inode) : false;
    if (mapped.ok() && *mapped) {
      note_mapped(core, *copy, inode->number);
      out.obstacle = Obstacle::kOpen;
      return out;
    }
    inode->evicting = true;
  }
  if (const Result<void> dropped = drop_names(core, inode->number, reason, out.bytes);
      !dropped.ok()) {
    const std::lock_guard lock(inode->mutex);
    inode->evicting = false;
    return dropped.error();
  }
  // The kernel is not told (drop.h says why), so it will not say that it forgets it.
  inode->disowned.store(true, std::memory_order_release);
  core.table.let_go(*inode);
  return out;
}

}  // namespace kvcachefs
