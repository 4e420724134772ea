// When a listing moves a directory's access time, and a readlink a symlink's
// (fs/names/read_times.h).
#pragma once

#include "backend/private_mount.h"

namespace kvcachefs {

// No inode has a mount below: kAsBelow is not for these.
struct ReadTimesOptions {
  AccessTimes symlinks = AccessTimes::kRelative;
  AccessTimes directories = AccessTimes::kRelative;
};

}  // namespace kvcachefs
