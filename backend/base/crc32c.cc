#include "backend/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace kvcachefs {
namespace {
// ISA-L takes an int as the length.
constexpr std::size_t kLargestStep = std::size_t{1} << 30;
}  // namespace

std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> data) noexcept {
  std::uint32_t state = ~crc;
  while (!data.empty()) {
    const std::size_t step = std::min(data.size(), kLargestStep);
    // The library's signature lacks a const; it only reads.
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data()));
    state = crc32_iscsi(bytes, static_cast<int>(step), state);
    data = data.subspan(step);
  }
  return ~state;
}

}  // namespace kvcachefs
