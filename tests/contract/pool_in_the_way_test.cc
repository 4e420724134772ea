// What stands on the pool in the place of something else: a directory, a symlink, nothing at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/test_volume.h"
#include "tests/servers/pool_places.h"
#include "tests/servers/volume_on_pool.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::Server;
using testing::TestVolume;

class PoolInTheWay : public ::testing::TestWithParam<testing::PoolPlaceMaker> {
 protected:
  PoolInTheWay() : place_(GetParam().make()) {}
  void SetUp() override {
    ASSERT_TRUE(TestVolume::wait_for([&] { return a_.nodes() == 2 && b_.nodes() == 2; }));
  }
  [[nodiscard]] std::string below(const std::string& path) const {
    return place_->root() + "/" + path;
  }
  [[nodiscard]] bool is_on_pool(const std::string& path) const {
    return std::filesystem::exists(below(path));
  }

  const std::unique_ptr<testing::PoolPlace> place_;
  Server a_{*place_, 1};
  Server b_{*place_, 2};
};

// Asked for while the way to the pool leads nowhere: that says nothing of what is on it.
TEST_P(PoolInTheWay, WhatIsMissedWhileThePoolIsNotMountedIsThereAfterwards) {
  a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool("f"); }));
  b_.stop();
  const std::string root = place_->root();
  std::filesystem::rename(root, root + ".mounted");
  b_.run();
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.health().last.code == ENOTCONN; }));
  EXPECT_FALSE(b_.finds("f"));
  std::filesystem::rename(root + ".mounted", root);
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("f") == "bytes"; }));
}

// Others have made a directory there meanwhile, which the pool has first.
TEST_P(PoolInTheWay, AFileStaysWhereThePoolHasADirectoryOfItsName) {
  std::filesystem::create_directories(below("d/n"));
  const InodeNumber d = b_->mkdir(kRootInode, "d");
  const InodeNumber n = b_->store_file(d, "n", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_->state_of(n) == DataState::kSealed; }));
  ASSERT_TRUE(TestVolume::wait_for([&] { return !must(b_->catalog().is_to_publish(n)); }));
  EXPECT_FALSE(must(b_->catalog().find_pool_copy(n)).has_value());
  EXPECT_EQ("bytes", b_.read("d/n"));
  EXPECT_EQ(1U, b_.counts().obstructed);
}

TEST_P(PoolInTheWay, ADirectoryThatOthersHaveFilledIsNotEmpty) {
  const InodeNumber theirs = a_->mkdir(kRootInode, "d");
  a_->store_file(theirs, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool("d/f") && b_.finds("d"); }));
  EXPECT_TRUE((*b_)->rmdir_asks_pool(kRootInode, "d"));
  EXPECT_ERROR(ENOTEMPTY, (*b_)->rmdir(kRootInode, "d"));
  EXPECT_EQ("bytes", b_.read("d/f"));
  EXPECT_OK((*b_)->unlink(must(b_->resolve("d")), "f"));
  EXPECT_OK((*b_)->rmdir(kRootInode, "d"));
  EXPECT_FALSE(b_.finds("d/f"));
}

// Over NFS the listing does not tell what a name is.
TEST_P(PoolInTheWay, WhatMountsDoNotShowIsNotListed) {
  std::filesystem::create_symlink("x", below("link"));
  std::ofstream(below("f")) << "bytes";
  if (GetParam().name == std::string("dir")) {
    const std::vector<std::string> names = b_->names_in(kRootInode);
    EXPECT_EQ(1, std::count(names.begin(), names.end(), "f"));
    EXPECT_EQ(0, std::count(names.begin(), names.end(), "link"));
  }
  EXPECT_FALSE(b_.finds("link"));
}

INSTANTIATE_TEST_SUITE_P(All, PoolInTheWay, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
