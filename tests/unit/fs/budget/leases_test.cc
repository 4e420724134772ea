// Leases: how long, and who loses one when there are too many.
#include "fs/budget/leases.h"

#include <gtest/gtest.h>

#include "tests/fakes/promise.h"

namespace kvcachefs {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr uid_t kAnn = 1000;
constexpr uid_t kBob = 1001;

TEST(Leases, HoldExactlyAsLongAsSaid) {
  PROMISE(3);
  Leases leases(60 * kSecond);
  leases.grant(7, kAnn, false, 100, 5 * kSecond);
  EXPECT_TRUE(leases.holds(7, 65 * kSecond - 1));
  EXPECT_FALSE(leases.holds(7, 65 * kSecond));
  EXPECT_FALSE(leases.holds(8, 5 * kSecond));
}

TEST(Leases, TheLastAnswerCounts) {
  Leases leases(60 * kSecond);
  leases.grant(7, kAnn, false, 100, 0);
  leases.grant(7, kBob, false, 100, 30 * kSecond);
  EXPECT_TRUE(leases.holds(7, 89 * kSecond));
  EXPECT_EQ(100U, leases.counts(89 * kSecond).bytes);
  EXPECT_EQ(0U, leases.counts(90 * kSecond).leases);
}

TEST(Leases, AFloodEndsItsOwnOldestFirst) {
  Leases leases(60 * kSecond);
  leases.set_most_bytes(1000);
  leases.grant(1, kBob, false, 300, 0);
  for (InodeNumber inode = 10; inode < 30; ++inode) leases.grant(inode, kAnn, false, 100, 1);
  EXPECT_TRUE(leases.holds(1, 2));
  EXPECT_FALSE(leases.holds(10, 2));
  EXPECT_TRUE(leases.holds(29, 2));
  EXPECT_EQ(1000U, leases.counts(2).bytes);
  EXPECT_EQ(13U, leases.counts(2).ended_early);
}

TEST(Leases, WhatWasOpenedStaysAndALookupDoesNotWeakenIt) {
  PROMISE(3);
  Leases leases(60 * kSecond);
  leases.set_most_bytes(1000);
  leases.grant(1, kAnn, true, 900, 0);
  leases.grant(1, kAnn, false, 900, 1);
  for (InodeNumber inode = 10; inode < 30; ++inode) leases.grant(inode, kAnn, false, 100, 2);
  EXPECT_TRUE(leases.holds(1, 3));
  EXPECT_TRUE(leases.holds(29, 3));
  EXPECT_FALSE(leases.holds(28, 3));
}

TEST(Leases, AreBoundedInNumber) {
  Leases leases(60 * kSecond);
  for (InodeNumber inode = 1; inode <= Leases::kMostLeases + 10; ++inode)
    leases.grant(inode, kAnn, inode % 2 == 0, 1, 0);
  EXPECT_EQ(Leases::kMostLeases, leases.counts(0).leases);
  EXPECT_EQ(10U, leases.counts(0).ended_early);
}

TEST(Leases, AForgottenFileHasNone) {
  Leases leases(60 * kSecond);
  leases.grant(1, kAnn, true, 10, 0);
  leases.grant(2, kAnn, false, 10, 0);
  leases.forget(1);
  leases.forget(2);
  leases.forget(3);
  EXPECT_EQ(0U, leases.counts(0).leases);
  EXPECT_EQ(0U, leases.counts(0).bytes);
}

}  // namespace
}  // namespace kvcachefs
