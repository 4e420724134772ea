// Why a file's names were taken away without the user's asking for it by a call.
#pragma once

#include <cstdint>

namespace kvcachefs {

enum class DropReason : std::uint8_t {
  kIncomplete,  // recovery: never published, or unsealed when the machine went down
  kPoisoned,    // the disk refused its data
  kLost,        // the backing file is missing
  kDamaged,     // the backing file is not what was sealed: it goes to quarantine
  kUnreadable,  // the same, because the device cannot read it
  // Evictions: the file was whole.
  kRoom,     // its room was needed
  kExpired,  // older than its directory's ttl, or a temporary that nobody goes on with
  kAsked,    // `kvcachefs evict`
};

[[nodiscard]] constexpr bool is_eviction(DropReason reason) noexcept {
  return reason >= DropReason::kRoom;
}

}  // namespace kvcachefs
