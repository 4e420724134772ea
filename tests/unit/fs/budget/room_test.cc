// How much may be used, and how much room there is: by sizes, shares and what others leave free.
#include "fs/budget/room.h"

#include <gtest/gtest.h>

#include "backend/base/clock.h"
#include "tests/fakes/promise.h"

namespace kvcachefs {
namespace {

struct statvfs filesystem(std::uint64_t total, std::uint64_t available) {
  struct statvfs below {};
  below.f_frsize = 4096;
  below.f_blocks = total / 4096;
  below.f_bavail = available / 4096;
  below.f_files = 1'000'000;
  below.f_favail = 900'000;
  return below;
}

TEST(Room, ASizeBoundsWhatIsOurs) {
  const Room room = room_of({.size = 10 * kGiB, .min_free = {.bytes = 0, .percent = 5}},
                            filesystem(100 * kGiB, 80 * kGiB), 4 * kGiB);
  EXPECT_EQ(10 * kGiB, room.budget);
  EXPECT_EQ(static_cast<std::int64_t>(6 * kGiB), room.bytes);
}

TEST(Room, WithoutASizeItIsAShareOfWhatIsFreeOrOurs) {
  const DeviceLimits limits;
  const Room empty = room_of(limits, filesystem(100 * kGiB, 50 * kGiB), 0);
  EXPECT_EQ(50 * kGiB / 100 * 80, empty.budget);
  // The same filesystem when we have filled some of it.
  const Room later = room_of(limits, filesystem(100 * kGiB, 30 * kGiB), 20 * kGiB);
  EXPECT_EQ(empty.budget, later.budget);
  EXPECT_EQ(static_cast<std::int64_t>(later.budget - 20 * kGiB), later.bytes);
}

TEST(Room, WhatStaysFreeStaysFreeWhoeverFillsIt) {
  const Room room = room_of({.size = 50 * kGiB, .min_free = {.bytes = 0, .percent = 5}},
                            filesystem(100 * kGiB, 3 * kGiB), 10 * kGiB);
  EXPECT_EQ(5 * kGiB, room.min_free);
  EXPECT_EQ(-static_cast<std::int64_t>(2 * kGiB), room.bytes);
}

TEST(Room, TheDatabaseIsPartOfTheSize) {
  const DeviceLimits limits{.size = 10 * kGiB, .min_free = {.bytes = 0, .percent = 5}};
  const Room room = room_of(limits, filesystem(100 * kGiB, 80 * kGiB), 4 * kGiB, kGiB);
  EXPECT_EQ(9 * kGiB, room.budget);
  EXPECT_EQ(static_cast<std::int64_t>(5 * kGiB), room.bytes);
  EXPECT_EQ(5 * kGiB, room_of(limits, filesystem(100 * kGiB, 80 * kGiB), 0, 8 * kGiB).budget);
  // A database that grows takes from a share as it takes from what is free.
  const Room before = room_of({}, filesystem(100 * kGiB, 50 * kGiB), 0);
  const Room after = room_of({}, filesystem(100 * kGiB, 48 * kGiB), 0, 2 * kGiB);
  EXPECT_EQ(before.budget, after.budget + 2 * kGiB);
}

TEST(Room, ABudgetIsNeverMoreThanCanBeReached) {
  const DeviceLimits limits{.size = 500 * kGiB, .min_free = {.bytes = 5 * kGiB, .percent = 0}};
  // Others have filled 50 of the 100, and we 10.
  EXPECT_EQ(45 * kGiB, room_of(limits, filesystem(100 * kGiB, 40 * kGiB), 10 * kGiB).budget);
  EXPECT_EQ(44 * kGiB,
            room_of(limits, filesystem(100 * kGiB, 39 * kGiB), 10 * kGiB, kGiB).budget);
  EXPECT_EQ(0U, room_of(limits, filesystem(100 * kGiB, 3 * kGiB), 0).budget);
}

TEST(Room, ABudgetIsNeverMoreThanThereIs) {
  const Room room = room_of({.size = 500 * kGiB, .min_free = {.bytes = 5 * kGiB, .percent = 0}},
                            filesystem(100 * kGiB, 90 * kGiB), std::nullopt);
  EXPECT_EQ(95 * kGiB, room.budget);
}

TEST(Room, WhatIsNotCountedYetIsNotHeldAgainstUs) {
  const Room room = room_of({.size = 1 * kGiB, .min_free = {.bytes = 0, .percent = 5}},
                            filesystem(100 * kGiB, 50 * kGiB), std::nullopt);
  EXPECT_EQ(static_cast<std::int64_t>(45 * kGiB), room.bytes);
}

TEST(Room, InodesRunOutToo) {
  struct statvfs below = filesystem(100 * kGiB, 90 * kGiB);
  below.f_favail = 9'000;
  EXPECT_EQ(-1'000, room_of({}, below, 0).inodes);
  below.f_files = 0;  // a filesystem that does not count them
  EXPECT_EQ(INT64_MAX, room_of({}, below, 0).inodes);
}

TEST(Room, HeadroomFollowsTheWritersWithinBounds) {
  PROMISE(4);
  const std::uint64_t budget = 64 * kGiB;
  EXPECT_EQ(budget / 64, marks_of(budget, 0, 0).headroom);
  EXPECT_EQ(188, marks_of(budget, 0, 3008).inode_headroom);
  EXPECT_EQ(94, marks_of(budget, 0, 3008).inode_low);
  EXPECT_EQ(16'384, marks_of(budget, 0, 1U << 30).inode_headroom);
  EXPECT_EQ(256 * kMiB, marks_of(4 * kGiB, 0, 0).headroom);
  EXPECT_EQ(128 * kMiB, marks_of(1 * kGiB, 0, 0).headroom);
  EXPECT_EQ(2 * kGiB, marks_of(budget, 4.0 * kGiB, 0).headroom);
  EXPECT_EQ(budget / 8, marks_of(budget, 1e15, 0).headroom);
  EXPECT_EQ(1 * kGiB, marks_of(budget, 4.0 * kGiB, 0).low);
}

TEST(Room, ItsLastBytesAreWatchedForWhoWritesFast) {
  const Room large{.budget = 3'000 * kGiB, .min_free = 200 * kGiB};
  EXPECT_EQ(256 * kMiB, danger_floor(large, 0));
  EXPECT_EQ(2 * kGiB, danger_floor(large, 10.0 * kGiB));
  EXPECT_EQ(100 * kGiB, danger_floor(large, 1e15));
  // A small one is not always in danger.
  const Room small{.budget = 900 * kMiB, .min_free = 50 * kMiB};
  EXPECT_EQ(25 * kMiB, danger_floor(small, 1.0 * kGiB));
  // Who leaves nothing free is watched all the same.
  const Room filled{.budget = 256 * kGiB, .min_free = 0};
  EXPECT_EQ(256 * kMiB, danger_floor(filled, 0));
  EXPECT_LT(danger_floor(filled, 1e15), marks_of(filled.budget, 1e15, 0).low);
}

TEST(WriteRate, IsThePeakOfTenSeconds) {
  WriteRate rate;
  std::int64_t now = 100 * kNanosPerSecond;
  EXPECT_EQ(0, rate.measure(0, now));
  EXPECT_EQ(1000, rate.measure(1000, now += kNanosPerSecond));
  EXPECT_EQ(1000, rate.measure(1100, now += kNanosPerSecond));
  for (int i = 0; i < 9; ++i) rate.measure(1200, now += kNanosPerSecond);
  EXPECT_LE(rate.measure(1200, now += kNanosPerSecond), 100);
}

}  // namespace
}  // namespace kvcachefs
