// A pool in a directory of a filesystem that the kernel has mounted: NFS, Lustre, CephFS, ext4, another FUSE.
//
// Paths are resolved below the directory whatever stands there: no symlink, no other mount. Bytes go through the
// page cache of this machine; commit() is fdatasync.
#pragma once

#include <memory>
#include <string>

#include "backend/pool/pool_session.h"

namespace kvcachefs {

// Errors: ENOENT, ENOTDIR, EACCES. The session has the directory open: what is mounted over it later is not seen.
[[nodiscard]] Result<std::unique_ptr<PoolSession>> open_dir_session(
    const std::string& directory);

}  // namespace kvcachefs
