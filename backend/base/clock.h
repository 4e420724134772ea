// Time as the product uses it: wall time for what users see, monotonic time for waits.
#pragma once

#include <atomic>
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
// here could look older than its directory. But for a file whose time somebody has seen it
// takes a finer one since Linux 6.13 (Documentation/filesystems/multigrain-ts.rst), which is
// ahead of the coarse clock by a tick of it at most: what comes later here is not to look
// older, so that note_file_time() raises this clock.
inline std::atomic<UnixNanos> latest_file_time{0};
inline constexpr std::int64_t kLongestTick =
    10 * kNanosPerMilli;  // of a kernel with CONFIG_HZ=100

[[nodiscard]] inline UnixNanos file_clock_now() noexcept {
  timespec t{};
  clock_gettime(CLOCK_REALTIME_COARSE, &t);
  const UnixNanos coarse = to_nanos(t);
  const UnixNanos latest = latest_file_time.load(std::memory_order_relaxed);
  // A time further ahead is of a clock that was wrong, or was told by utimensat(2).
  return latest > coarse && latest - coarse <= kLongestTick ? latest : coarse;
}

// A file is shown with this time, which the kernel has given it.
inline void note_file_time(UnixNanos time) noexcept {
  timespec t{};
  clock_gettime(CLOCK_REALTIME_COARSE, &t);
  if (time <= to_nanos(t)) return;
  clock_gettime(CLOCK_REALTIME, &t);
  const UnixNanos now = to_nanos(t);
  if (time > now) return;
  UnixNanos latest = latest_file_time.load(std::memory_order_relaxed);
  // One that is ahead of the clock is of a clock that was set back.
  while ((time > latest || latest > now) &&
         !latest_file_time.compare_exchange_weak(latest, time)) {
  }
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
