#include "fs/life/drop_replaced.h"

#include <utility>

#include "backend/base/log.h"
#include "fs/life/obstacle.h"
#include "fs/life/pool_standing.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

// The caller holds the inode's lock.
bool is_being_rewritten(const Inode& inode) {
  const InodeRecord& record = inode.record;
  return record.state == DataState::kUnpublished && record.previous_object != kNoObject &&
         record.nlink > 0 && inode.writers > 0 && !inode.is_going() &&
         (record.flags & kInodePoisoned) == 0;
}

}  // namespace

Result<std::optional<SealedCopy>> drop_replaced(
    Core& core, Inode& inode, const std::function<bool(const SealedCopy&)>& wanted) {
  const Treatment treatment = TRY(note_policy(core, inode));
  if (obstacle_by_policy(treatment) != Obstacle::kNone) return std::optional<SealedCopy>{};
  SealedCopy copy;
  {
    const std::lock_guard lock(inode.mutex);
    if (!is_being_rewritten(inode) || TRY(hides_older(core, inode)) != HidesOlder::kNo)
      return std::optional<SealedCopy>{};
    copy.object = inode.record.previous_object;
    copy.device = TRY(core.devices->index_of(copy.object));
    const Result<struct stat> backing = core.devices->at(copy.device).status(copy.object);
    // With a device that has failed there is no room to be made there.
    if (!backing.ok()) return std::optional<SealedCopy>{};
    copy.bytes = allocated_bytes(*backing);
    copy.tenant = treatment.tenant;
    if (!wanted(copy)) return std::optional<SealedCopy>{};
    InodeRecord next = inode.record;
    Edit edit;
    edit.set_frees();
    TRY(let_go_of_previous(core, next, edit));
    TRY(commit_record(core, inode, std::move(next), std::move(edit)));
  }
  log_debug("replaced_dropped inode={} object={} bytes={}", inode.number, copy.object,
            copy.bytes);
  if (core.on_orphan_object) core.on_orphan_object();
  return std::optional(copy);
}

}  // namespace kvcachefs
