// A directory that stands for a block (NameKind::kDirectory) goes with the last of its files: its
// runtime takes it for the block.
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

// After a name in it was dropped. Nothing happens to one that is no such directory, has further
// names in it, or is shared on a pool, where the files may be. The caller holds no inode lock.
// Errors: EIO, EBADMSG, ENOSPC.
Result<void> drop_block_directory(Core& core, InodeNumber directory);

}  // namespace kvcachefs
