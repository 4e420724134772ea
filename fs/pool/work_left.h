// What a part of write-back has left to do when it gives others their turn.
#pragma once

#include <cstdint>

namespace kvcachefs {

// The greater, the sooner.
enum class WorkLeft : std::uint8_t {
  kNothing,
  kLater,  // what could not be done now: after a pause
  kMore,   // what has not been tried yet: at once
};

}  // namespace kvcachefs
