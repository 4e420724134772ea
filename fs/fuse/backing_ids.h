// Backing ids as the kernel gives them out, for one session. Any thread.
#pragma once

#include "backend/base/result.h"

namespace kvcachefs {

// `session_fd` is the session's /dev/fuse, INIT answered. `file_fd` may be O_PATH and may be
// closed afterwards. Errors: EPERM (needs CAP_SYS_ADMIN in the initial user namespace, or
// passthrough was not agreed on), ELOOP (the file is on a filesystem that is stacked too deep),
// EOPNOTSUPP (not a regular file of a filesystem that can do it), ENOMEM.
Result<int> register_backing_file(int session_fd, int file_fd) noexcept;

// Open files that use it keep working.
void unregister_backing_file(int session_fd, int backing_id) noexcept;

}  // namespace kvcachefs
