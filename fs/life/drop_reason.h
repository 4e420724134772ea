// Why a file's names were taken away without the user's asking for it by a call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvcachefs {

enum class DropReason : std::uint8_t {
  kIncomplete,  // recovery: never published, or unsealed when the machine went down
  kPoisoned,    // the disk refused its data
  kAbandoned,   // its writer ended without closing it
  kLost,        // the backing file is missing
  kDamaged,     // the backing file is not what was sealed: it goes to quarantine
  kUnreadable,  // the same, because the device cannot read it
  kRemoved,     // another node removed or replaced it on the pool
  // Evictions: the file was whole.
  kRoom,     // its room was needed
  kQuota,    // its tenant had more than its quota
  kExpired,  // older than its directory's ttl, or a temporary that nobody goes on with
  kAsked,    // `kvcachefs evict`
};

inline constexpr std::size_t kDropReasons = static_cast<std::size_t>(DropReason::kAsked) + 1;

// "incomplete", "poisoned", "abandoned", "lost", "damaged", "unreadable", "removed", "room",
// "quota", "expired", "asked".
[[nodiscard]] constexpr std::string_view name_of(DropReason reason) noexcept {
  constexpr std::array<std::string_view, kDropReasons> kNames = {
      "incomplete", "poisoned", "abandoned", "lost",    "damaged", "unreadable",
      "removed",    "room",     "quota",     "expired", "asked"};
  return kNames[static_cast<std::size_t>(reason)];
}

[[nodiscard]] constexpr bool is_eviction(DropReason reason) noexcept {
  return reason >= DropReason::kRoom;
}

}  // namespace kvcachefs
