// How the answer to a READDIR without names has to be (fs/node/kernel_listings.h says why).
#pragma once

#include <cstdint>

namespace kvcachefs {

enum class ListingEnd : std::uint8_t {
  kEmpty,
  kShort,  // some bytes, shorter than a name
  kWaits,  // to be asked again, by a thread that may wait
};

}  // namespace kvcachefs
