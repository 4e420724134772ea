// Dropping: taking an inode's names away without the user's asking, so that it is a miss from
// now on. The cases: its writing failed (poison), its backing file is gone or damaged, a
// crash left it incomplete, or its room is needed.
#pragma once

#include "fs/life/drop_reason.h"
#include "fs/node/core.h"

namespace kvcachefs {

// Removes every name of the inode, tells the kernel, and leaves the inode to the reaper once
// nobody has it open. The caller holds no inode lock. An inode that is gone already is success.
// Errors: EIO, EBADMSG, ENOSPC.
Result<void> drop_names(Core& core, InodeNumber number, DropReason reason);

}  // namespace kvcachefs
