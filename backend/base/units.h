// Sizes and durations as people write them: `2TiB`, `500GB`, `80%`, `4096`, `250ms`.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "backend/base/result.h"

namespace kvcachefs {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;
inline constexpr std::uint64_t kTiB = 1024 * kGiB;

// A share of a device, or a number of bytes of it.
struct SizeLimit {
  std::uint64_t bytes = 0;    // 0 when a percentage was given
  std::uint32_t percent = 0;  // 1..100; 0 when bytes were given
  // In bytes, of a device of `capacity` bytes.
  [[nodiscard]] std::uint64_t of(std::uint64_t capacity) const noexcept;
};

// A number (with a fraction if you like) and a unit: none or B, KB MB GB TB PB EB (powers of
// 1000), KiB … EiB (powers of 1024); K M G T P E alone are powers of 1024, as mount(8) takes
// them. Case and spaces between number and unit do not matter. Parts of a byte are dropped.
// Errors: EINVAL (no size), ERANGE (outside [min, max]).
Result<std::uint64_t> parse_size(std::string_view text, std::uint64_t min = 0,
                                 std::uint64_t max = std::numeric_limits<std::int64_t>::max());
// A size in those bounds, or 1% … 100%. Errors: as parse_size().
Result<SizeLimit> parse_size_limit(
    std::string_view text, std::uint64_t min = 1,
    std::uint64_t max = std::numeric_limits<std::int64_t>::max());
// A number (with a fraction if you like) and a unit: us ms s (or none) min h d.
// Errors: EINVAL (no duration), ERANGE (outside [min, max]).
Result<std::chrono::nanoseconds> parse_duration(
    std::string_view text, std::chrono::nanoseconds min = std::chrono::nanoseconds{0},
    std::chrono::nanoseconds max = std::chrono::hours{24 * 365});

// `1.5 GiB`, `512 B`: at most one digit after the point, binary units.
[[nodiscard]] std::string format_size(std::uint64_t bytes);
// `3.2 s`, `250 ms`, `2 h 5 min`.
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds duration);

}  // namespace kvcachefs
