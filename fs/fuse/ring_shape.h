// How big the io_uring transport's memory may be: the kernel wants a queue for each CPU, and
// every entry of a queue has a buffer for a whole request.
#pragma once

#include <cstddef>

namespace kvcachefs {

inline constexpr std::size_t kLeastPayload = std::size_t{128} << 10;
inline constexpr std::size_t kMostPayload = std::size_t{1} << 20;

struct RingShape {
  std::size_t depth = 0;  // entries of each queue; 0: no shape fits, serve through /dev/fuse
  std::size_t payload_bytes = 0;  // largest request
  bool operator==(const RingShape&) const = default;
};

// The shape whose buffers take at most `memory_bytes` on that many CPUs: first the payload
// shrinks (requests then are split), then the depth (requests then wait in the kernel). `depth`
// is 2 to 1024.
[[nodiscard]] constexpr RingShape ring_shape(std::size_t cpus, std::size_t depth,
                                             std::size_t payload_bytes,
                                             std::size_t memory_bytes) noexcept {
  const auto fits = [&] { return cpus * depth * payload_bytes <= memory_bytes; };
  while (!fits() && payload_bytes / 2 >= kLeastPayload) payload_bytes /= 2;
  if (!fits()) depth = memory_bytes / (cpus * payload_bytes);
  if (depth < 2) return {};
  return {.depth = depth, .payload_bytes = payload_bytes};
}

}  // namespace kvcachefs
