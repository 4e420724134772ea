// A pool in a directory of a filesystem that the kernel has mounted: NFS, Lustre, CephFS, ext4, another FUSE.
//
// Paths are resolved below the directory whatever stands there: no symlink, no other mount. Bytes go through the
// page cache of this machine; commit() is fdatasync.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/pool/pool_session.h"

namespace kvcachefs {

// Others who may write to the pool's directory can read and change everybody's files: with
// kRefused that is EPERM.
enum class OtherWriters : std::uint8_t { kRefused, kTaken };

// Errors: ENOENT, ENOTDIR, EACCES, EPERM. The session has the directory open: what is mounted
// over it later is not seen. Directories that it makes have the mode that is asked for where
// the umask of the process is 0.
[[nodiscard]] Result<std::unique_ptr<PoolSession>> open_dir_session(
    const std::string& directory, OtherWriters others = OtherWriters::kTaken);

}  // namespace kvcachefs
