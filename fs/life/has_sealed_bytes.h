// What a file's bytes say after a crash of the machine.
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

// Whether the file still is what its last seal's checksums say: reads all of it. The caller holds the inode's
// lock, or is alone. Errors: ENOENT (no backing file), EIO and what else a bad medium says, EBADMSG.
Result<bool> has_sealed_bytes(Core& core, Inode& inode);

}  // namespace kvcachefs
