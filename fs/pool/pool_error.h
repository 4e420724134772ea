// Which failures of a call to the pool are the pool's, rather than one file's: others fare no better, and work is left for
// later as a whole.
#pragma once

#include <cerrno>

namespace kvcachefs {

[[nodiscard]] inline bool is_of_pool(int code) noexcept {
  return code == ENOTCONN || code == ETIMEDOUT || code == EBUSY || code == ENOSPC ||
         code == EDQUOT || code == EROFS || code == EOPNOTSUPP;
}

// Which are a path's for sure, however many there are.
[[nodiscard]] inline bool is_of_path(int code) noexcept {
  return code == EACCES || code == EPERM || code == ENAMETOOLONG || code == ELOOP;
}

}  // namespace kvcachefs
