// Who waits for a disk that takes no writes.
#include "backend/base/stall_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "backend/base/clock.h"

namespace kvcachefs::testing {
namespace {

TEST(StallWatch, SaysHowLongTheOldestWriteToADiskHasTaken) {
  StallWatch watch;
  const std::int64_t began = monotonic_now();
  auto first = std::make_unique<StallWatch::Wait>(watch, 7);
  EXPECT_EQ(0, watch.stalled(7));
  EXPECT_FALSE(watch.any());
  while (monotonic_now() - began < StallWatch::kStalled + kNanosPerMilli)
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  const StallWatch::Wait second(watch, 8);
  EXPECT_GE(watch.stalled(7), StallWatch::kStalled);
  EXPECT_EQ(0, watch.stalled(8)) << "it has just begun";
  EXPECT_TRUE(watch.any());
  first.reset();
  EXPECT_EQ(0, watch.stalled(7));
  EXPECT_FALSE(watch.any());
}

TEST(StallWatch, SeesNoMoreThanItsPlacesAndLosesNone) {
  StallWatch watch;
  std::vector<std::unique_ptr<StallWatch::Wait>> waits;
  for (std::size_t i = 0; i < StallWatch::kMostWaits + 10; ++i)
    waits.push_back(std::make_unique<StallWatch::Wait>(watch, 1));
  waits.clear();
  for (std::size_t i = 0; i < StallWatch::kMostWaits; ++i)
    waits.push_back(std::make_unique<StallWatch::Wait>(watch, 1));
  std::this_thread::sleep_for(std::chrono::nanoseconds{StallWatch::kStalled});
  EXPECT_GT(watch.stalled(1), 0);
}

}  // namespace
}  // namespace kvcachefs::testing
