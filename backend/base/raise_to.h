// Raises an atomic number that only grows.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvcachefs {

// Any thread. A thread that comes late with a lower value changes nothing.
inline void raise_to(std::atomic<std::uint64_t>& number, std::uint64_t value) noexcept {
  std::uint64_t now = number;
  while (now < value && !number.compare_exchange_weak(now, value)) {
  }
}

}  // namespace kvcachefs
