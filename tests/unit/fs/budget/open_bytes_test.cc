// Who may hold how much by having it open.
#include "fs/budget/open_bytes.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/fakes/promise.h"

namespace kvcachefs {
namespace {

constexpr uid_t kFirstUser = 1000;
constexpr uid_t kSecondUser = 1001;
constexpr std::uint64_t kBytesOfOne = 100;

class OpenBytesTest : public ::testing::Test {
 protected:
  OpenBytesTest() { of_tenants_[1] = 300; }

  // How many files of a hundred bytes the user gets, from this number on.
  std::size_t open_all(uid_t user, InodeNumber from, TenantSlot tenant = 0, bool owner = true) {
    open_.set_most_bytes(1000, of_tenants_);
    std::size_t count = 0;
    for (InodeNumber inode = from; inode < from + 50; ++inode) {
      auto hold = open_.open({.inode = inode,
                              .user = user,
                              .is_owner = owner,
                              .tenant = tenant,
                              .bytes = kBytesOfOne});
      if (!hold) return count;
      held_.push_back(std::move(*hold));
      ++count;
    }
    return count;
  }

  OpenBytes open_;
  OpenBytes::TenantBytes of_tenants_{};
  std::vector<OpenBytes::Hold> held_;
};

TEST_F(OpenBytesTest, OneUserHoldsAllThatThereIsForAll) {
  PROMISE(8);
  EXPECT_EQ(10U, open_all(kFirstUser, 1));
  held_.clear();
  EXPECT_EQ(10U, open_all(kFirstUser, 100));
}

TEST_F(OpenBytesTest, ASecondOneHasHisPartAllTheSame) {
  PROMISE(8);
  EXPECT_EQ(10U, open_all(kFirstUser, 1));
  EXPECT_EQ(5U, open_all(kSecondUser, 100));
  // And who has more than his part gets no more, though another has gone.
  EXPECT_EQ(0U, open_all(kFirstUser, 200));
}

TEST_F(OpenBytesTest, WhatHeHasOpenHeMayOpenAgain) {
  EXPECT_EQ(10U, open_all(kFirstUser, 1));
  auto again = open_.open({.inode = 3, .user = kFirstUser, .bytes = kBytesOfOne});
  EXPECT_TRUE(again);
  // It counts until its last descriptor is closed.
  held_.erase(held_.begin() + 2);
  EXPECT_EQ(0U, open_all(kFirstUser, 100));
  again.reset();
  EXPECT_EQ(1U, open_all(kFirstUser, 100));
}

TEST_F(OpenBytesTest, OneFileMayBeLargerThanAll) {
  open_.set_most_bytes(1000, {});
  const auto large = open_.open({.inode = 1, .user = kFirstUser, .bytes = 5000});
  EXPECT_TRUE(large);
  EXPECT_FALSE(open_.open({.inode = 2, .user = kFirstUser, .bytes = 1}));
  EXPECT_TRUE(open_.open({.inode = 2, .user = kSecondUser, .bytes = 5000}));
}

TEST_F(OpenBytesTest, OfATenantsFilesOthersHoldTheirPartAlone) {
  PROMISE(8);
  EXPECT_EQ(3U, open_all(kSecondUser, 1, 1, false));
  EXPECT_EQ(7U, open_all(kFirstUser, 100, 1, true));
}

TEST_F(OpenBytesTest, ManyUsersHaveAPartOfASixteenth) {
  for (uid_t user = 0; user < 100; ++user) open_all(user, 1000 * user);
  // One file each, when nothing else is left.
  EXPECT_EQ(1U, open_all(1000, 1'000'000));
}

TEST_F(OpenBytesTest, EmptyFilesHoldNothing) {
  open_.set_most_bytes(1000, {});
  std::vector<std::optional<OpenBytes::Hold>> empty;
  for (InodeNumber inode = 1; inode < 100; ++inode)
    empty.push_back(open_.open({.inode = inode, .user = kFirstUser, .bytes = 0}));
  for (const auto& hold : empty) EXPECT_TRUE(hold);
  empty.clear();
  EXPECT_EQ(10U, open_all(kFirstUser, 100));
}

TEST_F(OpenBytesTest, WithoutABoundAllAreLetIn) {
  for (InodeNumber inode = 1; inode < 100; ++inode) {
    auto hold = open_.open({.inode = inode, .user = kFirstUser, .bytes = 1U << 30});
    ASSERT_TRUE(hold);
    held_.push_back(std::move(*hold));
  }
}

}  // namespace
}  // namespace kvcachefs
