// From a path to the mount of ours behind it and its daemon.
#pragma once

#include <sys/types.h>

#include <string>

#include "backend/base/result.h"
#include "fs/mount_table.h"

namespace kvcachefs {

struct FoundMount {
  MountEntry entry;
  std::string state;  // its state directory
  pid_t daemon = 0;   // who holds that directory now; 0: nobody
};

enum class FindMount {
  kExactly,  // the path is the mount point
  kHolding,  // the path lies in the mount
};

// A path into a mount that hangs is not followed. Errors: ENOENT (no such path), EINVAL (no mount of ours), ETIMEDOUT and
// ENOTCONN (the mount that it leads into hangs, or is dead); `problem` has the line for the user.
Result<FoundMount> find_mount(const std::string& path, FindMount how, std::string& problem);

// What it means for the user that the daemon's control socket gave this error.
[[nodiscard]] std::string daemon_problem(const FoundMount& mount, const Error& error);

}  // namespace kvcachefs
