// What stage-in (stager.h) came to.
#pragma once

#include <cstdint>

namespace kvcachefs {

struct StageCounts {
  std::uint64_t files = 0;  // read ahead since the start
  std::uint64_t bytes = 0;
  // Of these files, those that were loaded, and those that were not and left memory again.
  std::uint64_t loaded = 0;
  std::uint64_t unused = 0;
  std::uint64_t held_bytes = 0;  // read ahead by now and not loaded yet
};

}  // namespace kvcachefs
