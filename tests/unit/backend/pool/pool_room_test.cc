#include "backend/pool/pool_room.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

constexpr std::int64_t kPatience = PoolRoom::kPatience;

TEST(PoolRoom, IsThereWithoutALimit) {
  PoolRoom room;
  EXPECT_TRUE(room.take(UINT64_MAX / 2, UINT64_MAX / 4, 0));
}

TEST(PoolRoom, WhatIsOnItsWayCounts) {
  PoolRoom room;
  room.set(100);
  EXPECT_TRUE(room.take(60, 30, 0));
  EXPECT_TRUE(room.take(20, 30, 0));
  EXPECT_FALSE(room.take(1, 30, 0));
  room.give(20);
  EXPECT_TRUE(room.take(20, 30, 0));
}

TEST(PoolRoom, OneFileMayGoBeyondTheLimit) {
  PoolRoom room;
  room.set(100);
  EXPECT_TRUE(room.take(1000, 99, 0));
  EXPECT_FALSE(room.take(1, 99, 0));
}

TEST(PoolRoom, EachNodeTakesItsPartUntilItHasHeardOfTheOthers) {
  PoolRoom room;
  room.set(100);
  room.heard(4);
  EXPECT_TRUE(room.take(5, 20, 0));
  EXPECT_TRUE(room.take(10, 20, 0)) << "15 of 20 are taken before the last one";
  EXPECT_TRUE(room.take(10, 20, 0));
  EXPECT_FALSE(room.take(1, 20, 0));
  EXPECT_FALSE(room.take(0, 20, 0));
  room.heard(4);
  EXPECT_TRUE(room.take(1, 45, 0));
}

TEST(PoolRoom, OneFileMayBeMoreThanTheNodesPart) {
  PoolRoom room;
  room.set(100);
  room.heard(4);
  EXPECT_TRUE(room.take(90, 0, 0));
  EXPECT_FALSE(room.take(1, 0, 0));
}

TEST(PoolRoom, AFullPoolThatComesDownIsWaitedFor) {
  PoolRoom room;
  room.set(100);
  EXPECT_FALSE(room.take(1, 200, 0));
  EXPECT_FALSE(room.take(1, 190, kPatience - 1));
  EXPECT_FALSE(room.take(1, 190, 2 * kPatience - 2));
  EXPECT_TRUE(room.take(1, 190, 2 * kPatience));
}

TEST(PoolRoom, APoolThatIsNotBroughtDownTakesWhatIsStoredAllTheSame) {
  PoolRoom room;
  room.set(100);
  EXPECT_FALSE(room.take(1, 200, 5));
  EXPECT_FALSE(room.take(1, 200, 4 + kPatience));
  EXPECT_TRUE(room.take(1, 200, 5 + kPatience));
  EXPECT_TRUE(room.take(1, 200, 6 + kPatience));
  // It has come down: from now on it is waited for again.
  EXPECT_TRUE(room.take(1, 0, 7 + kPatience));
  EXPECT_FALSE(room.take(1, 200, 8 + kPatience));
}

}  // namespace
}  // namespace kvcachefs
