// When the bytes of sealed files are compared with their checksums.
#pragma once

#include <cstdint>

namespace kvcachefs {

enum class VerifyMode : std::uint8_t {
  kOpen,  // at an open that will read from the disk, when a copy moves, and by the scrub
  kCopy,  // when a copy moves, and by the scrub
  kOff,   // never
};

}  // namespace kvcachefs
