#include "backend/base/clock.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

TEST(Clock, NanosAndTimespecAreTheSameTime) {
  for (const UnixNanos nanos :
       {INT64_C(0), INT64_C(1), INT64_C(999'999'999), INT64_C(1'000'000'000), INT64_C(-1),
        INT64_C(-1'000'000'000), INT64_C(-1'000'000'001), INT64_C(1'700'000'000'123'456'789)}) {
    const timespec time = to_timespec(nanos);
    EXPECT_GE(time.tv_nsec, 0);
    EXPECT_LT(time.tv_nsec, kNanosPerSecond);
    EXPECT_EQ(nanos, to_nanos(time));
  }
}

TEST(Clock, MonotonicTimeDoesNotGoBack) {
  const std::int64_t before = monotonic_now();
  EXPECT_LE(before, monotonic_now());
  EXPECT_GT(file_clock_now(), INT64_C(1'500'000'000) * kNanosPerSecond);
}

UnixNanos fine_now() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return to_nanos(t);
}

TEST(FileClock, FollowsATimeThatWasShown) {
  for (int turn = 0; turn < 1000; ++turn) {
    const UnixNanos shown = fine_now();
    note_file_time(shown);
    EXPECT_GE(file_clock_now(), shown);
    EXPECT_LE(file_clock_now(), fine_now());
  }
}

TEST(FileClock, IsNotLedByATimeOfTomorrow) {
  constexpr UnixNanos kDay = UnixNanos{24} * 3600 * kNanosPerSecond;
  note_file_time(fine_now() + kDay);
  EXPECT_LE(file_clock_now(), fine_now());
  note_file_time(fine_now() - kDay);
  EXPECT_GE(file_clock_now(), fine_now() - kLongestTick);
}

// The clock was ahead when a file was stamped and shown, and was set right.
TEST(FileClock, GoesOnAfterAClockThatWasWrong) {
  latest_file_time.store(fine_now() + kNanosPerSecond * 3600);
  EXPECT_LE(file_clock_now(), fine_now());
  const UnixNanos shown = fine_now();
  note_file_time(shown);
  EXPECT_GE(file_clock_now(), shown);
}

}  // namespace
}  // namespace kvcachefs
