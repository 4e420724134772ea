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
  leases.grant({.inode = 7, .user = kAnn, .opened = false, .bytes = 100}, 5 * kSecond);
  EXPECT_TRUE(leases.holds(7, 65 * kSecond - 1));
  EXPECT_FALSE(leases.holds(7, 65 * kSecond));
  EXPECT_FALSE(leases.holds(8, 5 * kSecond));
}

TEST(Leases, TheLastAnswerCounts) {
  Leases leases(60 * kSecond);
  leases.grant({.inode = 7, .user = kAnn, .opened = false, .bytes = 100}, 0);
  leases.grant({.inode = 7, .user = kBob, .opened = false, .bytes = 100}, 30 * kSecond);
  EXPECT_TRUE(leases.holds(7, 89 * kSecond));
  EXPECT_EQ(100U, leases.counts(89 * kSecond).bytes);
  EXPECT_EQ(0U, leases.counts(90 * kSecond).leases);
}

TEST(Leases, AFloodEndsItsOwnOldestFirst) {
  Leases leases(60 * kSecond);
  leases.set_most_bytes(1000);
  leases.grant({.inode = 1, .user = kBob, .opened = false, .bytes = 300}, 0);
  for (InodeNumber inode = 10; inode < 30; ++inode)
    leases.grant({.inode = inode, .user = kAnn, .opened = false, .bytes = 100}, 1);
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
  leases.grant({.inode = 1, .user = kAnn, .opened = true, .bytes = 900}, 0);
  leases.grant({.inode = 1, .user = kAnn, .opened = false, .bytes = 900}, 1);
  for (InodeNumber inode = 10; inode < 30; ++inode)
    leases.grant({.inode = inode, .user = kAnn, .opened = false, .bytes = 100}, 2);
  EXPECT_TRUE(leases.holds(1, 3));
  EXPECT_TRUE(leases.holds(29, 3));
  EXPECT_FALSE(leases.holds(28, 3));
}

TEST(Leases, WhatWasOpenedIsOnHalfOfTheBudgetAsWell) {
  Leases leases(60 * kSecond);
  leases.set_most_bytes(1000);
  leases.grant({.inode = 1, .user = kBob, .opened = false, .bytes = 300}, 0);
  for (InodeNumber inode = 10; inode < 30; ++inode)
    leases.grant({.inode = inode, .user = kAnn, .opened = true, .bytes = 100}, 1);
  EXPECT_TRUE(leases.holds(1, 2));
  EXPECT_FALSE(leases.holds(22, 2));
  EXPECT_TRUE(leases.holds(23, 2));
  EXPECT_EQ(1000U, leases.counts(2).bytes);
}

TEST(Leases, OneFileMayBeMoreThanTheBound) {
  Leases leases(60 * kSecond);
  leases.set_most_bytes(1000);
  leases.grant({.inode = 1, .user = kAnn, .bytes = 300}, 0);
  leases.grant({.inode = 2, .user = kAnn, .bytes = 3000}, 0);
  EXPECT_TRUE(leases.holds(2, 1));
  EXPECT_FALSE(leases.holds(1, 1));
  leases.grant({.inode = 3, .user = kBob, .bytes = 10}, 2);
  EXPECT_FALSE(leases.holds(2, 3));
  EXPECT_TRUE(leases.holds(3, 3));
}

TEST(Leases, OnATenantsFilesAreOnHalfOfItsQuota) {
  Leases leases(60 * kSecond);
  Leases::TenantBytes of_tenants{};
  of_tenants[1] = 500;
  leases.set_most_bytes(10'000, of_tenants);
  leases.grant({.inode = 1, .user = kBob, .tenant = 1, .bytes = 200}, 0);
  for (InodeNumber inode = 10; inode < 30; ++inode) {
    leases.grant({.inode = inode, .user = kAnn, .tenant = 1, .bytes = 100}, 1);
    leases.grant({.inode = 100 + inode, .user = kAnn, .tenant = 2, .bytes = 100}, 1);
  }
  EXPECT_TRUE(leases.holds(1, 2));
  EXPECT_FALSE(leases.holds(26, 2));
  EXPECT_TRUE(leases.holds(27, 2));
  EXPECT_EQ(500U + 2000U, leases.counts(2).bytes);
}

TEST(Leases, AreBoundedInNumber) {
  Leases leases(60 * kSecond);
  for (InodeNumber inode = 1; inode <= Leases::kMostLeases + 10; ++inode)
    leases.grant({.inode = inode, .user = kAnn, .opened = inode % 2 == 0, .bytes = 1}, 0);
  EXPECT_EQ(Leases::kMostLeases, leases.counts(0).leases);
  EXPECT_EQ(10U, leases.counts(0).ended_early);
}

TEST(Leases, AForgottenFileHasNone) {
  Leases leases(60 * kSecond);
  leases.grant({.inode = 1, .user = kAnn, .opened = true, .bytes = 10}, 0);
  leases.grant({.inode = 2, .user = kAnn, .opened = false, .bytes = 10}, 0);
  leases.forget(1);
  leases.forget(2);
  leases.forget(3);
  EXPECT_EQ(0U, leases.counts(0).leases);
  EXPECT_EQ(0U, leases.counts(0).bytes);
}

}  // namespace
}  // namespace kvcachefs
