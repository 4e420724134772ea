// What is published on the pool: told to the mount (--pool-writes), or to a directory for all below. Where the mount
// publishes nothing, no directory does.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvcachefs {

// kReused: of blocks only those that are opened once more after they were stored, and those that are kept. Most blocks
// never are: they cost the pool nothing.
enum class PoolWrites : std::uint8_t { kAll, kReused, kOff };

// "all", "reused" or "off"; on a directory.
inline constexpr std::string_view kPoolWritesXattr = "user.kvcachefs.pool-writes";

[[nodiscard]] constexpr std::optional<PoolWrites> parse_pool_writes(std::string_view text) {
  if (text == "all") return PoolWrites::kAll;
  if (text == "reused") return PoolWrites::kReused;
  if (text == "off") return PoolWrites::kOff;
  return std::nullopt;
}
[[nodiscard]] constexpr std::string_view name_of(PoolWrites writes) {
  if (writes == PoolWrites::kReused) return "reused";
  return writes == PoolWrites::kAll ? "all" : "off";
}

}  // namespace kvcachefs
