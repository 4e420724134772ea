// Errors of bytes that are lost.
#pragma once

#include <cerrno>

namespace kvcachefs {

// What a disk or its filesystem answers for bytes that it has lost, and not when it is short of
// something for a moment.
[[nodiscard]] inline bool is_bad_medium(int code) noexcept {
  switch (code) {
    case EIO:
    case ENODATA:
    case EILSEQ:
    case EREMOTEIO:
    case EBADMSG:
    case EUCLEAN:
      return true;
    default:
      return false;
  }
}

}  // namespace kvcachefs
