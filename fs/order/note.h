// A call that says something about the order of names, on its way to who learns from it.
#pragma once

#include <cstdint>

#include "fs/order/callers.h"

namespace kvcachefs::order {

class Learner;

struct Note {
  enum class What : std::uint8_t {
    kHit,
    kMiss,
    kStoreBegan,
    kStored,
    kLoaded,
    kRemoved,
    kListed,
  };
  What what = What::kHit;
  std::uint64_t name = 0;  // of all but kListed
  Caller caller;           // of none to kStored and kRemoved
  std::int64_t when_ns = 0;
};

// Makes the learner's call that the note stands for.
void tell(Learner& learner, const Note& note);

}  // namespace kvcachefs::order
