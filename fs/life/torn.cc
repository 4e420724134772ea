#include "fs/life/torn.h"

#include "fs/life/drop.h"
#include "fs/life/obstacle.h"
#include "fs/life/states.h"

namespace kvcachefs {

Result<void> drop_torn(Core& core, Inode& inode) {
  const bool is_kept = obstacle_by_policy(TRY(note_policy(core, inode))) != Obstacle::kNone;
  if (is_kept) return {};
  DropReason reason = DropReason::kPoisoned;
  {
    const std::lock_guard lock(inode.mutex);
    reason = drop_reason_of(inode.write_errno);
  }
  return drop_names(
      core, inode.number, reason, {}, {.may_go = [](const Inode& now) -> Result<bool> {
        return is_torn(now) && now.writers == 0 && (now.record.flags & kInodeFsynced) == 0;
      }});
}

}  // namespace kvcachefs
