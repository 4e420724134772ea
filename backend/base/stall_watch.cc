#include "backend/base/stall_watch.h"

#include <algorithm>

#include "backend/base/clock.h"

namespace kvcachefs {

StallWatch::Wait::Wait(StallWatch& watch, std::uint32_t disk) noexcept
    : watch_(watch), slot_(kMostWaits) {
  // Each thread begins at a place of its own, so that they seldom meet.
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t own = threads.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t now = monotonic_now();
  for (std::size_t i = 0; i < kMostWaits; ++i) {
    Slot& slot = watch_.slots_[(own + i) % kMostWaits];
    std::int64_t free = 0;
    // Taken as one that has just begun, before its disk is known.
    if (!slot.since.compare_exchange_strong(free, now, std::memory_order_relaxed)) continue;
    slot.disk.store(disk, std::memory_order_relaxed);
    slot_ = (own + i) % kMostWaits;
    watch_.waits_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

StallWatch::Wait::~Wait() {
  if (slot_ == kMostWaits) return;
  watch_.waits_.fetch_sub(1, std::memory_order_relaxed);
  watch_.slots_[slot_].since.store(0, std::memory_order_relaxed);
}

template <class Visit>
void StallWatch::each_stalled(Visit visit) const noexcept {
  if (waits_.load(std::memory_order_relaxed) == 0) return;
  const std::int64_t now = monotonic_now();
  for (const Slot& slot : slots_) {
    const std::int64_t since = slot.since.load(std::memory_order_relaxed);
    if (since != 0 && now - since >= kStalled)
      visit(slot.disk.load(std::memory_order_relaxed), now - since);
  }
}

std::int64_t StallWatch::stalled(std::uint32_t disk) const noexcept {
  std::int64_t longest = 0;
  each_stalled([&](std::uint32_t of, std::int64_t waited) {
    if (of == disk) longest = std::max(longest, waited);
  });
  return longest;
}

bool StallWatch::any() const noexcept {
  bool found = false;
  each_stalled([&](std::uint32_t, std::int64_t) { found = true; });
  return found;
}

}  // namespace kvcachefs
