// Dropping: taking an inode's names away without the user's asking, so that it is a miss from
// now on. The cases: its writing failed (poison), its backing file is gone or damaged, or a
// crash left it incomplete.
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

enum class DropReason {
  kIncomplete,  // recovery: never published, or unsealed when the machine went down
  kPoisoned,    // the disk refused its data
  kLost,        // the backing file is missing
  kDamaged,     // the backing file is not what was sealed: it goes to quarantine
};

// Removes every name of the inode, tells the kernel, and leaves the inode to the reaper once
// nobody has it open. The caller holds no inode lock. An inode that is gone already is success.
// Errors: EIO, EBADMSG, ENOSPC.
Result<void> drop_names(Core& core, InodeNumber number, DropReason reason);

}  // namespace kvcachefs
