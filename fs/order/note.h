// A call that says something about the order of names, on its way to who learns from it.
#pragma once

#include <cstdint>

#include "fs/order/callers.h"
#include "fs/order/name_record.h"

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
    kNotListed,  // a kListed is taken back: the caller's lookups count from `until_ns` on
    kGrouped,    // it is in `group` from now on
    kBecame,     // what was looked up as `was` is `name`
  };
  What what = What::kHit;
  std::uint64_t name = 0;  // of all but kListed and kNotListed
  Caller caller;           // of none to kStored, kRemoved, kGrouped and kBecame
  std::int64_t when_ns = 0;
  Group group = 0;            // of kGrouped
  std::uint64_t was = 0;      // of kBecame
  std::int64_t until_ns = 0;  // of kNotListed
};

// Makes the learner's call that the note stands for.
void tell(Learner& learner, const Note& note);

}  // namespace kvcachefs::order
