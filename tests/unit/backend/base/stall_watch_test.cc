// Who waits for a disk that takes no writes.
#include "backend/base/stall_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "backend/base/clock.h"

namespace kvcachefs::testing {
namespace {

bool becomes_stalled(const StallWatch& watch, std::uint32_t disk) {
  const std::int64_t deadline = monotonic_now() + 60 * kNanosPerSecond;
  while (watch.stalled(disk) == 0) {
    if (monotonic_now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(StallWatch, SaysHowLongTheOldestWriteToADiskHasTaken) {
  StallWatch watch;
  auto first = std::make_unique<StallWatch::Wait>(watch, 7);
  EXPECT_EQ(0, watch.stalled(7));
  EXPECT_FALSE(watch.any());
  ASSERT_TRUE(becomes_stalled(watch, 7));
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
  EXPECT_TRUE(becomes_stalled(watch, 1));
}

}  // namespace
}  // namespace kvcachefs::testing
