// CRC32C (Castagnoli), the checksum of every chunk of a sealed object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvcachefs {

// The checksum of `data` after bytes whose checksum is `crc` (0 for none): it chains, and
// crc32c(0, "123456789") is 0xE3069283.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t crc, std::span<const std::byte> data) noexcept;

}  // namespace kvcachefs
