// Which failures of a call to the pool are the pool's, rather than one file's: others fare no better, and work is left for
// later as a whole.
#pragma once

#include <cerrno>

namespace kvcachefs {

[[nodiscard]] inline bool is_of_pool(int code) noexcept {
  return code == ENOTCONN || code == ETIMEDOUT || code == EBUSY || code == ENOSPC ||
         code == EDQUOT || code == EROFS || code == EOPNOTSUPP;
}

}  // namespace kvcachefs
