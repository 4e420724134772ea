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
// cannot tell, and its policy keeps it); ETIMEDOUT (its disk does not answer, nothing is known
// of the file, and its names stay); kMustWait.
Result<struct stat> checked_status(Core& core, Inode& inode);

// What a user is told of an error of checked_status(): `miss` where the file is gone, or is a
// cache's and its disk does not answer; EIO where that is an application's. The caller holds no
// inode lock.
Error miss_or_error(Core& core, Inode& inode, const Error& error, int miss);

}  // namespace kvcachefs
