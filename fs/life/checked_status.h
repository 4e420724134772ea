// Whether a file is still what its record says, by a look at its backing file.
#pragma once

#include <sys/stat.h>

#include "fs/node/core.h"

namespace kvcachefs {

// Looks at a regular file's backing file. A missing one, one that is no regular file, or one
// that was cut or grown since the seal (grown: but for kInodeMayGrow), makes the inode a miss:
// its names are dropped and the error is ENOENT. A sealed file whose modification time moved
// goes back to `mutable` (a ctime alone is judged by the checksums: fs/life/verify.h). The
// caller holds no inode lock. Other errors: EIO; EBADMSG (no regular file, or the filesystem
// cannot tell, and its policy keeps it).
Result<struct stat> checked_status(Core& core, Inode& inode);

}  // namespace kvcachefs
