// A view of a directory through a mount of our own, which nobody else sees: access times move
// there as we want it, whatever the mount says that the directory is in.
//
// The kernel keeps access times by the mount that a file was opened through (touch_atime(),
// fs/inode.c); that of a backing file (fs/backing-file.c) is the one that its descriptor was
// opened through.
#pragma once

#include <cstdint>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

// When a read moves a file's access time, as mount(8) has it.
enum class AccessTimes : std::uint8_t {
  kAsBelow,   // as the mount below says
  kNever,     // noatime
  kRelative,  // relatime: where it is not later than the last change, or a day old
  kAlways,    // strictatime
};

// The directory, opened through a mount of its own with these access times, never kAsBelow. The
// mount goes with the last descriptor that was opened through it. What is mounted below the
// directory is not in it. Errors: EPERM (no CAP_SYS_ADMIN), ENOSYS (before Linux 5.12).
Result<UniqueFd> open_privately(int directory, AccessTimes times);

// Gives the mount at `path` (mount_setattr(2)) what libfuse does not pass on. Errors: EPERM,
// ENOSYS, EINVAL (MOUNT_ATTR_NOSYMFOLLOW is there from Linux 5.14 on).
Result<void> set_mount_flags(const char* path, AccessTimes times, bool follows_symlinks);

}  // namespace kvcachefs
