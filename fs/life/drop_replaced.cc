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

// Its device, if there is something to be dropped on it. The caller holds the inode's lock.
Result<std::optional<std::uint32_t>> device_of_replaced(
    Core& core, const Inode& inode, const std::function<bool(std::uint32_t)>& is_wanted) {
  if (!is_being_rewritten(inode) || inode.kept) return std::optional<std::uint32_t>{};
  const std::uint32_t device = TRY(core.devices->index_of(inode.record.previous_object));
  return is_wanted(device) ? std::optional(device) : std::nullopt;
}

}  // namespace

Result<std::optional<Replaced>> drop_replaced(
    Core& core, Inode& inode, const std::function<bool(std::uint32_t)>& is_wanted) {
  {
    const std::lock_guard lock(inode.mutex);
    if (!TRY(device_of_replaced(core, inode, is_wanted))) return std::optional<Replaced>{};
  }
  const Treatment treatment = TRY(note_policy(core, inode));
  if (obstacle_by_policy(treatment) != Obstacle::kNone) return std::optional<Replaced>{};
  Replaced out;
  {
    const std::lock_guard lock(inode.mutex);
    const auto device = TRY(device_of_replaced(core, inode, is_wanted));
    if (!device || TRY(hides_older(core, inode)) != HidesOlder::kNo)
      return std::optional<Replaced>{};
    const ObjectId object = inode.record.previous_object;
    const Result<struct stat> backing = core.devices->status_of_copy(*device, object);
    // With a device that has failed there is no room to be made there.
    if (!backing.ok()) return std::optional<Replaced>{};
    out = {.device = *device, .bytes = allocated_bytes(*backing)};
    InodeRecord next = inode.record;
    Edit edit;
    edit.set_frees();
    TRY(let_go_of_previous(core, next, edit));
    TRY(commit_record(core, inode, std::move(next), std::move(edit)));
    log_debug("replaced_dropped inode={} object={} bytes={}", inode.number, object, out.bytes);
  }
  if (core.on_orphan_object) core.on_orphan_object();
  return std::optional(out);
}

}  // namespace kvcachefs
