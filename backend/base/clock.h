// Time as the product uses it: wall time for what users see, monotonic time for waits.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>

namespace kvcachefs {

// Nanoseconds since the epoch, as in a struct timespec; negative before 1970.
using UnixNanos = std::int64_t;
inline constexpr std::int64_t kNanosPerSecond = 1'000'000'000;
inline constexpr std::int64_t kNanosPerMilli = 1'000'000;

// Cut at the ends of what 64 bits hold, 1677 and 2262.
[[nodiscard]] constexpr UnixNanos to_nanos(const timespec& t) noexcept {
  constexpr std::int64_t kMostSeconds = INT64_MAX / kNanosPerSecond - 1;
  if (t.tv_sec > kMostSeconds) return INT64_MAX;
  if (t.tv_sec < -kMostSeconds) return -kMostSeconds * kNanosPerSecond;
  return static_cast<std::int64_t>(t.tv_sec) * kNanosPerSecond + t.tv_nsec;
}
[[nodiscard]] constexpr timespec to_timespec(UnixNanos nanos) noexcept {
  std::int64_t seconds = nanos / kNanosPerSecond;
  std::int64_t rest = nanos % kNanosPerSecond;
  if (rest < 0) {
    rest += kNanosPerSecond;
    --seconds;
  }
  return timespec{.tv_sec = seconds, .tv_nsec = rest};
}

// The kernel stamps files with its coarse clock; ours must be the same one, or a file created
// here could look older than its directory.
[[nodiscard]] inline UnixNanos file_clock_now() noexcept {
  timespec t{};
  clock_gettime(CLOCK_REALTIME_COARSE, &t);
  return to_nanos(t);
}
[[nodiscard]] inline std::int64_t monotonic_now() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return to_nanos(t);
}

// The clocks of a part that judges ages by them. Any thread calls them.
struct Clocks {
  std::function<std::int64_t()> monotonic = monotonic_now;
  std::function<UnixNanos()> files = file_clock_now;  // that of the kernel's file times
};

}  // namespace kvcachefs
