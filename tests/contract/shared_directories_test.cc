// Directories of several mounts on one pool, and what they are told, over each kind of pool.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <string>

#include "backend/pool/pool_format.h"
#include "fs/known/file_policy.h"
#include "fs/layout/layout.h"
#include "tests/fakes/test_volume.h"
#include "tests/servers/shared_volumes.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::Server;
using testing::TestVolume;

class SharedDirectories : public testing::SharedVolumes {
 protected:
  static bool wait_for(const std::function<bool()>& is_so) {
    return TestVolume::wait_for(is_so);
  }
  static std::string told(Server& server, const std::string& path, std::string_view name) {
    const auto inode = server->resolve(path);
    if (!inode.ok()) return "not there";
    const auto value = (*server)->get_xattr(*inode, name, TestVolume::kRoot);
    return value.ok() ? *value : "";
  }
  static void tell(Server& server, const std::string& path, std::string_view name,
                   std::string_view value) {
    must((*server)->set_xattr(must(server->resolve(path)), name, value, 0, TestVolume::kRoot));
  }
  static Result<void> rename(Server& server, const std::string& from, const std::string& to) {
    return (*server)->rename(kRootInode, from, kRootInode, to, 0, TestVolume::kRoot);
  }
  std::string told_there(const std::string& path) {
    struct stat found {};
    if (::stat(below(path).c_str(), &found) != 0) return "not there";
    return on_pool(pool_told_path(found.st_ino));
  }
};

TEST_P(SharedDirectories, AnEmptyDirectoryIsFoundByAll) {
  const InodeNumber d = a_->mkdir(kRootInode, "d", 0750);
  a_->mkdir(d, "e");
  EXPECT_TRUE(wait_for([&] { return b_.finds("d/e"); }));
  EXPECT_TRUE(wait_for([&] {
    const auto found = b_->resolve("d");
    return found.ok() && b_->stat_of(*found).st_mode == (S_IFDIR | 0750U);
  }));
  const auto names = b_->names_in(must(b_->resolve("d")));
  EXPECT_EQ(1, std::count(names.begin(), names.end(), "e"));
  b_->store_file(must(b_->resolve("d/e")), "f", "bytes");
  EXPECT_TRUE(wait_for([&] { return a_.read("d/e/f") == "bytes"; }));
}

// It comes with its first block: most of them never get one.
TEST_P(SharedDirectories, OneThatIsMadeForABlockIsNotMadeThere) {
  const InodeNumber model = a_->mkdir(kRootInode, "m_0123456789ab_r0");
  a_->mkdir(model, "abc");
  a_->mkdir(kRootInode, "after");
  ASSERT_TRUE(wait_for([&] { return b_.finds("after"); }));
  ASSERT_TRUE(wait_for([&] { return a_.counts().to_publish == 0; }));
  EXPECT_TRUE(is_on_pool("m_0123456789ab_r0"));
  EXPECT_FALSE(is_on_pool("m_0123456789ab_r0/abc"));
}

TEST_P(SharedDirectories, ARemovedOneGoesForAll) {
  a_->mkdir(a_->mkdir(kRootInode, "d"), "e");
  ASSERT_TRUE(wait_for([&] { return a_.counts().to_publish == 0 && b_.finds("d/e"); }));
  EXPECT_OK((*b_)->rmdir(must(b_->resolve("d")), "e"));
  EXPECT_OK((*b_)->rmdir(kRootInode, "d"));
  EXPECT_TRUE(wait_for([&] { return !a_.finds("d"); }));
  EXPECT_FALSE(is_on_pool("d"));
  // While the other is away.
  a_->mkdir(kRootInode, "g");
  ASSERT_TRUE(wait_for([&] { return b_.finds("g"); }));
  b_.stop();
  EXPECT_OK((*a_)->rmdir(kRootInode, "g"));
  ASSERT_TRUE(wait_for([&] { return !is_on_pool("g"); }));
  b_.run();
  EXPECT_TRUE(wait_for([&] { return !b_.finds("g"); }));
}

TEST_P(SharedDirectories, OneThatIsInUseStaysWhereItIsUsed) {
  const InodeNumber d = a_->mkdir(kRootInode, "d");
  ASSERT_TRUE(wait_for([&] { return a_.counts().to_publish == 0 && b_.finds("d"); }));
  b_->store_file(must(b_->resolve("d")), "f.tmp", "part");
  EXPECT_OK((*a_)->rmdir(kRootInode, "d"));
  ASSERT_TRUE(wait_for([&] { return !is_on_pool("d"); }));
  a_->mkdir(kRootInode, "after");
  ASSERT_TRUE(wait_for([&] { return b_.finds("after"); }));
  const InodeNumber mine = must(b_->resolve("d"));
  EXPECT_EQ("part", b_.read("d/f.tmp"));
  ASSERT_TRUE(wait_for([&] { return must(b_->catalog().find_pool_copy(mine))->fileid == 0; }));
  EXPECT_OK((*b_)->rename(mine, "f.tmp", mine, "f", 0, TestVolume::kRoot));
  EXPECT_TRUE(wait_for([&] { return a_.read("d/f") == "part"; }));
  EXPECT_NE(d, must(a_->resolve("d")));
}

// A directory that another node has made anew is another one.
TEST_P(SharedDirectories, ALateRemovalTakesNoOtherDirectory) {
  a_->mkdir(kRootInode, "d");
  ASSERT_TRUE(wait_for([&] { return b_.finds("d"); }));
  struct stat found {};
  ASSERT_EQ(0, ::stat(below("d").c_str(), &found));
  b_.stop();
  // Another one stands there: it has another number as long as the first one is there.
  std::filesystem::rename(below("d"), below("e"));
  std::filesystem::create_directory(below("d"));
  b_.run();
  // Before it has looked: what it removes is what it knew.
  Edit edit;
  edit.put_tombstone("d", {.fileid = found.st_ino, .is_directory = true});
  must(b_->catalog().commit(std::move(edit)));
  b_->mkdir(kRootInode, "after");
  ASSERT_TRUE(wait_for([&] { return is_on_pool("after"); }));
  ASSERT_TRUE(wait_for([&] { return b_.counts().to_remove == 0; }));
  EXPECT_TRUE(is_on_pool("d"));
}

TEST_P(SharedDirectories, OneInWhichThePoolHasNothingIsRenamed) {
  const InodeNumber d = a_->mkdir(kRootInode, "d");
  ASSERT_TRUE(wait_for([&] { return b_.finds("d"); }));
  a_->store_file(d, "f.tmp", "bytes");
  EXPECT_OK(rename(a_, "d", "e"));
  EXPECT_TRUE(wait_for([&] { return !b_.finds("d") && b_.finds("e"); }));
  EXPECT_FALSE(is_on_pool("d"));
  EXPECT_OK((*a_)->rename(d, "f.tmp", d, "f", 0, TestVolume::kRoot));
  ASSERT_TRUE(wait_for([&] { return b_.read("e/f") == "bytes"; }));
  EXPECT_ERROR(EXDEV, rename(a_, "e", "g"));
  // What stands there empty may be replaced.
  a_->mkdir(kRootInode, "h");
  a_->mkdir(kRootInode, "i");
  ASSERT_TRUE(wait_for([&] { return b_.finds("h") && b_.finds("i"); }));
  EXPECT_OK(rename(a_, "h", "i"));
  EXPECT_TRUE(wait_for([&] { return !b_.finds("h") && b_.finds("i"); }));
}

TEST_P(SharedDirectories, WhatOneTellsHoldsForAll) {
  const InodeNumber d = a_->mkdir(kRootInode, "d");
  tell(a_, "d", kToldXattr, "mooncake_file");
  EXPECT_TRUE(wait_for([&] { return told(b_, "d", kToldXattr) == "mooncake_file"; }));
  // One word each, at the same time: both hold.
  tell(a_, "d", kPolicyXattr, "keep");
  tell(b_, "d", kTtlXattr, "7d");
  for (Server* server : {&a_, &b_})
    EXPECT_TRUE(wait_for([&] {
      return told(*server, "d", kPolicyXattr) == "keep" &&
             told(*server, "d", kTtlXattr) == "7d" &&
             told(*server, "d", kToldXattr) == "mooncake_file";
    })) << told_there("d");
  must((*a_)->remove_xattr(d, kPolicyXattr, TestVolume::kRoot));
  EXPECT_TRUE(wait_for([&] { return told(b_, "d", kPolicyXattr).empty(); }));
  EXPECT_EQ("7d", told(b_, "d", kTtlXattr));
}

// What is given a number of the pool's server that another directory had is told nothing of what that one was.
TEST_P(SharedDirectories, WhatIsMadeAnewIsToldNothing) {
  for (int round = 0; round < 3; ++round) {
    a_->mkdir(kRootInode, "d");
    tell(a_, "d", kPolicyXattr, "keep");
    ASSERT_TRUE(wait_for([&] { return told(b_, "d", kPolicyXattr) == "keep"; })) << round;
    EXPECT_OK((*a_)->rmdir(kRootInode, "d"));
    ASSERT_TRUE(wait_for([&] { return !b_.finds("d"); }));
    a_->mkdir(kRootInode, "d");
    tell(a_, "d", kTtlXattr, "1d");
    ASSERT_TRUE(wait_for([&] { return told(b_, "d", kTtlXattr) == "1d"; })) << round;
    EXPECT_EQ("", told(b_, "d", kPolicyXattr));
    EXPECT_OK((*a_)->rmdir(kRootInode, "d"));
    ASSERT_TRUE(wait_for([&] { return !b_.finds("d"); }));
  }
}

TEST_P(SharedDirectories, WhatIsOwedIsDoneByTheNextRun) {
  a_->mkdir(kRootInode, "known");
  a_->mkdir(kRootInode, "goes");
  ASSERT_TRUE(wait_for([&] { return b_.finds("known") && b_.finds("goes"); }));
  a_.lose_pool();
  a_->mkdir(kRootInode, "d");
  tell(a_, "d", kPolicyXattr, "keep");
  tell(a_, "known", kTtlXattr, "1d");
  EXPECT_OK((*a_)->rmdir(kRootInode, "goes"));
  a_->mkdir(kRootInode, "brief");
  EXPECT_OK((*a_)->rmdir(kRootInode, "brief"));
  a_.stop();
  EXPECT_FALSE(is_on_pool("d"));
  a_.run();
  EXPECT_TRUE(wait_for([&] { return told(b_, "d", kPolicyXattr) == "keep"; }));
  EXPECT_TRUE(wait_for([&] { return told(b_, "known", kTtlXattr) == "1d"; }));
  EXPECT_TRUE(wait_for([&] { return !b_.finds("goes"); }));
  EXPECT_FALSE(is_on_pool("brief"));
}

INSTANTIATE_TEST_SUITE_P(All, SharedDirectories, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
