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

}  // namespace
}  // namespace kvcachefs
