// Places for requests that wait, by queue and user.
#include "fs/fuse/parking.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kvcachefs {
namespace {

TEST(Parking, OneUserHasAllButTheLastPlaces) {
  const auto queue = std::make_shared<Parking>();
  std::vector<Parking::Place> taken;
  for (int i = 0; i < 14; ++i) {
    taken.push_back(queue->enter(1000, 16));
    ASSERT_TRUE(taken.back()) << i;
  }
  EXPECT_FALSE(queue->enter(1000, 16));
  // Others still find some.
  Parking::Place first = queue->enter(0, 16);
  Parking::Place second = queue->enter(1001, 16);
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
  EXPECT_FALSE(queue->enter(1002, 16));
  EXPECT_FALSE(queue->enter(1000, 16));
  taken.pop_back();
  EXPECT_TRUE(queue->enter(1002, 16));
  EXPECT_FALSE(queue->enter(1000, 16));
}

TEST(Parking, APlaceIsFreeWhenItIsLeft) {
  const auto queue = std::make_shared<Parking>();
  Parking::Place place = queue->enter(1, 1);
  ASSERT_TRUE(place);
  EXPECT_FALSE(queue->enter(1, 1));
  Parking::Place moved = std::move(place);
  EXPECT_FALSE(queue->enter(1, 1));
  moved.leave();
  moved.leave();
  EXPECT_TRUE(queue->enter(1, 1));
  EXPECT_FALSE(queue->enter(1, 0));
}

TEST(Parking, FurtherPlacesAreCountedByThemselves) {
  const auto queue = std::make_shared<Parking>();
  Parking::Place place = queue->enter(1, 1);
  ASSERT_TRUE(place);
  Parking::Place beyond = queue->enter_beyond(1);
  EXPECT_TRUE(beyond);
  EXPECT_FALSE(queue->enter_beyond(1));
  place.leave();
  EXPECT_FALSE(queue->enter_beyond(1));
  place = queue->enter(2, 1);
  EXPECT_TRUE(place);
  Parking::Place moved;
  moved = std::move(beyond);
  moved.leave();
  EXPECT_TRUE(queue->enter_beyond(1));
  EXPECT_FALSE(queue->enter(3, 1));
}

TEST(Parking, WhoWaitsForAPlaceIsTold) {
  const auto queue = std::make_shared<Parking>();
  Parking::Place place = queue->enter(1, 1);
  const std::uint64_t seen = queue->leaves();
  std::thread other([&] { place.leave(); });
  queue->await_leave(seen, std::chrono::hours(1));
  EXPECT_EQ(seen + 1, queue->leaves());
  other.join();
  // Also of what has been left already.
  queue->await_leave(seen, std::chrono::hours(1));
  queue->await_leave(seen + 1, std::chrono::milliseconds(1));
}

TEST(Parking, EachThreadHasItsQueue) {
  Parking::Place here = Parking::of_this_thread().enter(1, 1);
  ASSERT_TRUE(here);
  EXPECT_FALSE(Parking::of_this_thread().enter(1, 1));
  Parking::Place there;
  std::thread([&] { there = Parking::of_this_thread().enter(1, 1); }).join();
  EXPECT_TRUE(there);
  // It outlives the thread that served the queue.
  there.leave();
}

}  // namespace
}  // namespace kvcachefs
