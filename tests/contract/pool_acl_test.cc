// ACLs stay on their server: what the others are told of a file that has one.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fs/acl/posix_acl.h"
#include "tests/fakes/test_volume.h"
#include "tests/servers/pool_places.h"
#include "tests/servers/volume_on_pool.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::Server;
using testing::TestVolume;

// A user may read, the file's group and others may not; the mask makes the mode 0640.
const std::string kAcl = [] {
  const auto number = [](std::uint32_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
    return out;
  };
  std::string value = number(2, 4);
  for (const AclEntry& entry :
       {AclEntry{AclEntry::kUserObj, 6, UINT32_MAX}, AclEntry{AclEntry::kUser, 4, 1000},
        AclEntry{AclEntry::kGroupObj, 0, UINT32_MAX}, AclEntry{AclEntry::kMask, 4, UINT32_MAX},
        AclEntry{AclEntry::kOther, 0, UINT32_MAX}})
    value += number(entry.tag, 2) + number(entry.perm, 2) + number(entry.id, 4);
  return value;
}();

class PoolAcl : public ::testing::TestWithParam<testing::PoolPlaceMaker> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TestVolume::wait_for([&] { return a_.nodes() == 2 && b_.nodes() == 2; }));
    a_->store_file(kRootInode, "f", "bytes");
    file_ = must(a_->resolve("f"));
    set_mode(*a_, file_, 0600);
    ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("f") && mode_on_b() == 0600U; }));
  }
  static void set_mode(TestVolume& volume, InodeNumber file, std::uint32_t mode) {
    SetAttributes change;
    change.mode = mode;
    must(volume->set_attributes(file, change, nullptr, TestVolume::kRoot));
  }
  void set_acl() { must((*a_)->set_xattr(file_, kAclAccess, kAcl, 0, TestVolume::kRoot)); }
  static std::uint32_t mode_of(TestVolume& volume, InodeNumber file) {
    return volume.stat_of(file).st_mode & 07777U;
  }
  std::uint32_t mode_on_b() { return mode_of(*b_, must(b_->resolve("f"))); }
  bool is_told() { return must(a_->catalog().list_owner_changes("", 10)).empty(); }

  const std::unique_ptr<testing::PoolPlace> place_ = GetParam().make();
  Server a_{*place_, 1};
  Server b_{*place_, 2};
  InodeNumber file_ = 0;
};

TEST_P(PoolAcl, OthersAreToldNoMoreThanItGives) {
  set_acl();
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_told(); }));
  EXPECT_EQ(0600U, mode_on_b());
  EXPECT_EQ(0640U, mode_of(*a_, file_));
  // A chmod on either is one of the group's bits, which the mask has here.
  const InodeNumber there = must(b_->resolve("f"));
  set_mode(*b_, there, 0620);
  EXPECT_TRUE(TestVolume::wait_for([&] { return mode_of(*a_, file_) == 0620U; }));
  set_mode(*a_, file_, 0644);
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_told(); }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return mode_on_b() == 0604U; }));
  EXPECT_EQ(0644U, mode_of(*a_, file_));
  must((*a_)->remove_xattr(file_, kAclAccess, TestVolume::kRoot));
  EXPECT_TRUE(TestVolume::wait_for([&] { return mode_on_b() == 0644U; }));
  EXPECT_EQ(0644U, mode_of(*a_, file_));
}

// What is still to be told may be told when the list is gone with the file.
TEST_P(PoolAcl, WhatIsToBeToldSaysNoMoreEither) {
  a_.lose_pool();
  set_acl();
  const auto changes = must(a_->catalog().list_owner_changes("", 10));
  ASSERT_EQ(1U, changes.size());
  EXPECT_EQ(0600U, changes.front().second.mode);
  set_mode(*a_, file_, 0666);
  EXPECT_EQ(0604U, must(a_->catalog().list_owner_changes("", 10)).front().second.mode);
}

INSTANTIATE_TEST_SUITE_P(All, PoolAcl, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
