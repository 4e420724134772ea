// One more descriptor of an open file, for who may hold on to it for longer than its owner.
#pragma once

#include <fcntl.h>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

// Errors: EMFILE.
[[nodiscard]] inline Result<UniqueFd> duplicate_fd(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return fail_errno("a descriptor");
  return copy;
}

}  // namespace kvcachefs
