// How a directory stands among what is to be published (Edit::put_to_publish()): in place of a size.
#pragma once

#include <cstdint>

namespace kvcachefs {

inline constexpr std::uint64_t kQueuedDirectory = UINT64_MAX;

}  // namespace kvcachefs
