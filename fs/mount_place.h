// Whether a mount can be made here: what the process may do, and what stands on the mount
// point.
#pragma once

#include <functional>
#include <string>

#include "backend/base/result.h"
#include "fs/answer_probe.h"

namespace kvcachefs {

// Tells the person who mounts something worth a word that is no failure.
using Note = std::function<void(const std::string& text)>;

// Errors: EPERM, EACCES (no privilege; --allow-other by a user who may not), ENOENT, ENODEV (no
// /dev/fuse). `problem` says what is missing and how to get it.
Result<void> check_privileges(bool allow_other, std::string& problem);

// Checks that the mount point is a directory with no mount of ours on it. A mount whose daemon
// has died is taken away, and `note` told. `probe` is used up. Errors: ENOENT, ENOTDIR, EBUSY
// (ours, alive), ENOTCONN (another filesystem's dead mount), ETIMEDOUT.
Result<void> take_mount_point(const std::string& mountpoint, AnswerProbe& probe,
                              const Note& note, std::string& problem);

// After take_mount_point(). Errors: ENOTEMPTY: the mount would hide what is in the directory.
Result<void> refuse_nonempty(const std::string& mountpoint, std::string& problem);

}  // namespace kvcachefs
