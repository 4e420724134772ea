// What another node has removed or replaced on the pool loses its name here.
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

// Takes the name away that stands for `copy` on the pool. Not if the file has other bytes by now, which will be published, or
// another copy. Its further hard links stay where its bytes are here: they are this node's alone.
// Errors: those of drop_names(). The caller holds no inode lock.
Result<void> drop_shared(Core& core, InodeNumber number, const PoolCopy& copy);

}  // namespace kvcachefs
