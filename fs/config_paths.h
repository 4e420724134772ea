// The paths of a mount's settings: resolved, and none where the daemon would wait for itself or change what is not its own.
#pragma once

#include <string>

#include "backend/base/result.h"
#include "fs/config.h"

namespace kvcachefs {

// Resolves the mount point, the devices, the state directory, the log and a pool's directory, and refuses
//   - a device, the state directory, the log or the pool in the mount point: the daemon would be the one that it asks;
//   - a mount point or a log in what the daemon keeps to itself on a device, or in the state directory;
//   - a device or the state directory that others could replace (trusted_path.h), unless the settings say otherwise;
//   - two devices, or a pool and a device or the state directory, of which one is inside the other.
// Two ways to one directory, by symlinks or bind mounts, are the same as far as the table of mounts tells. A mount that hangs on
// the mount point, or on the pool's directory, is waited for a moment at most. Errors: EINVAL, and those of
// canonical_path(); `problem` names the option, the path and the fix.
Result<void> finish_paths(Config& config, std::string& problem);

}  // namespace kvcachefs
