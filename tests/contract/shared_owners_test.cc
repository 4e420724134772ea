// Owners, groups and modes of files that several mounts share, over each kind of pool.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "backend/pool/pool_format.h"
#include "fs/explain/evict.h"
#include "tests/fakes/test_volume.h"
#include "tests/servers/shared_volumes.h"
#include "tests/servers/volume_on_pool.h"

namespace kvcachefs {
namespace {

using testing::block_name;
using testing::kMissing;
using testing::must;
using testing::Server;
using testing::TestVolume;

class SharedOwners : public testing::SharedVolumes {};

TEST_P(SharedOwners, AnOwnerAndAModeHoldOnAllNodes) {
  const InodeNumber d = a_->mkdir(kRootInode, "d", 0755);
  a_->store_file(d, block_name(1), "block");
  const InodeNumber f = a_->store_file(d, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return b_.read("d/" + block_name(1)) == "block" && b_.read("d/f") == "bytes" &&
           must(a_->catalog().find_pool_copy(d)).has_value();
  }));
  put_on_pool("d/adopted", "theirs");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.read("d/adopted") == "theirs"; }));
  const auto inode_on_b = [&](const std::string& path) { return must(b_->resolve(path)); };
  const auto has = [&](InodeNumber inode, std::uint32_t uid, std::uint32_t mode) {
    const struct stat found = b_->stat_of(inode);
    return found.st_uid == uid && found.st_gid == 1001U && (found.st_mode & 07777) == mode;
  };
  SetAttributes change;
  change.uid = 1000;
  change.gid = 1001;
  change.mode = 0600;
  const std::vector<std::string> paths = {"d", "d/f", "d/" + block_name(1), "d/adopted"};
  for (const std::string& path : paths) {
    // Nobody looks the name up in between: it reaches what is used already.
    const InodeNumber there = inode_on_b(path);
    ASSERT_TRUE(a_.finds(path));
    must((*a_)->set_attributes(must(a_->resolve(path)), change, nullptr, TestVolume::kRoot));
    EXPECT_TRUE(TestVolume::wait_for([&] { return has(there, 1000, 0600); })) << path;
  }
  // From there, too, and to who sees it for the first time.
  change.uid = 2000;
  must((*b_)->set_attributes(inode_on_b("d/f"), change, nullptr, TestVolume::kRoot));
  EXPECT_TRUE(TestVolume::wait_for([&] { return a_->stat_of(f).st_uid == 2000U; }));
  Server c(*place_, 3);
  ASSERT_TRUE(TestVolume::wait_for([&] { return c.finds("d/f") && c.finds("d/adopted"); }));
  EXPECT_EQ(2000U, c->stat_of(must(c->resolve("d/f"))).st_uid);
  EXPECT_EQ(1000U, c->stat_of(must(c->resolve("d/adopted"))).st_uid);
  EXPECT_EQ("theirs", c.read("d/adopted"));
  EXPECT_EQ("block", c.read("d/" + block_name(1)));
  EXPECT_EQ(0U, must(a_->catalog().list_owner_changes("", 10)).size());
}

// No other server has a program run as somebody here.
TEST_P(SharedOwners, SetIdBitsAreTheOwnNodesAlone) {
  const InodeNumber d = a_->mkdir(kRootInode, "d", 0755);
  const InodeNumber f = a_->store_file(d, block_name(1), "block");
  const auto has = [](TestVolume& volume, InodeNumber inode, std::uint32_t mode) {
    return (volume.stat_of(inode).st_mode & 07777) == mode;
  };
  const auto chmod = [&](InodeNumber inode, std::uint32_t mode) {
    SetAttributes change;
    change.mode = mode;
    must((*a_)->set_attributes(inode, change, nullptr, TestVolume::kRoot));
    return TestVolume::wait_for(
        [&] { return must(a_->catalog().list_owner_changes("", 10)).empty(); });
  };
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return b_.read("d/" + block_name(1)) == "block" &&
           must(a_->catalog().find_pool_copy(d)).has_value();
  }));
  const InodeNumber f_on_b = must(b_->resolve("d/" + block_name(1)));
  const InodeNumber d_on_b = must(b_->resolve("d"));
  ASSERT_TRUE(chmod(f, 06751));
  ASSERT_TRUE(chmod(d, 07751));
  EXPECT_TRUE(TestVolume::wait_for([&] { return has(*b_, f_on_b, 0751); }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return has(*b_, d_on_b, 03751); }));
  Server c(*place_, 3);
  ASSERT_TRUE(TestVolume::wait_for([&] { return c.finds("d/" + block_name(1)); }));
  EXPECT_TRUE(has(*c, must(c->resolve("d/" + block_name(1))), 0751));
  EXPECT_TRUE(has(*c, must(c->resolve("d")), 03751));
  // Here they stay, whatever else another node says; a new owner ends them.
  SetAttributes change;
  change.mode = 0711;
  must((*b_)->set_attributes(f_on_b, change, nullptr, TestVolume::kRoot));
  EXPECT_TRUE(TestVolume::wait_for([&] { return has(*a_, f, 06711); }));
  change.mode = std::nullopt;
  change.uid = 1000;
  must((*b_)->set_attributes(f_on_b, change, nullptr, TestVolume::kRoot));
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return a_->stat_of(f).st_uid == 1000U && has(*a_, f, 0711); }));
}

// Each has given one of them, and neither has heard of the other.
TEST_P(SharedOwners, AnOwnerAndAModeOfTwoNodesBothHold) {
  a_->store_file(kRootInode, block_name(1), "block");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.read(block_name(1)) == "block"; }));
  b_.stop();
  SetAttributes mode;
  mode.mode = 0600;
  const InodeNumber on_a = must(a_->resolve(block_name(1)));
  must((*a_)->set_attributes(on_a, mode, nullptr, TestVolume::kRoot));
  ASSERT_TRUE(TestVolume::wait_for(
      [&] { return must(a_->catalog().list_owner_changes("", 10)).empty(); }));
  b_.run();
  SetAttributes owner;
  owner.uid = 7;
  const InodeNumber on_b = must(b_->resolve(block_name(1)));
  must((*b_)->set_attributes(on_b, owner, nullptr, TestVolume::kRoot));
  const auto has_both = [](TestVolume& volume, InodeNumber inode) {
    const struct stat found = volume.stat_of(inode);
    return found.st_uid == 7 && (found.st_mode & 07777) == 0600;
  };
  // On the node that gave the last of them, nobody looks it up again.
  EXPECT_TRUE(TestVolume::wait_for([&] { return has_both(*b_, on_b); }));
  EXPECT_TRUE(TestVolume::wait_for([&] {
    return a_.finds(block_name(1)) && has_both(*a_, must(a_->resolve(block_name(1))));
  }));
}

TEST_P(SharedOwners, AnOwnerThatWasMissedIsAskedFor) {
  const InodeNumber d = a_->mkdir(kRootInode, "d", 0755);
  const std::string block = "d/" + block_name(1);
  a_->store_file(d, block_name(1), "block");
  a_->store_file(d, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return b_.read(block) == "block" && b_.read("d/f") == "bytes" &&
           must(a_->catalog().find_pool_copy(d)).has_value();
  }));
  b_.stop();
  SetAttributes change;
  change.mode = 0700;
  for (const std::string& path : {std::string("d"), block, std::string("d/f")})
    must((*a_)->set_attributes(must(a_->resolve(path)), change, nullptr, TestVolume::kRoot));
  ASSERT_TRUE(TestVolume::wait_for(
      [&] { return must(a_->catalog().list_owner_changes("", 10)).empty(); }));
  b_.run();
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.is_joined(); }));
  for (const std::string& path : {std::string("d"), block, std::string("d/f")})
    EXPECT_TRUE(TestVolume::wait_for([&] {
      return (b_->stat_of(must(b_->resolve(path))).st_mode & 07777) == 0700;
    })) << path;
}

// Given while the pool is away, it holds when the file itself has gone from here meanwhile.
TEST_P(SharedOwners, AnOwnerOutlivesTheFileThatItWasGivenTo) {
  const InodeNumber f = a_->store_file(kRootInode, block_name(1), "block");
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return must(a_->catalog().find_pool_copy(f)).has_value(); }));
  const PoolCopy copy = *must(a_->catalog().find_pool_copy(f));
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.counts().to_publish == 0; }));
  ASSERT_EQ(1U, must((*a_)->evict(block_name(1))).files);
  Edit edit;
  edit.put_owner_change(block_name(1),
                        {.fileid = copy.fileid, .uid = 1000, .gid = 1001, .mode = 0600});
  // Of another file that had the path.
  edit.put_owner_change("g", {.fileid = copy.fileid + 1, .uid = 1, .gid = 1, .mode = 0777});
  must(a_->catalog().commit(std::move(edit)));
  ASSERT_TRUE(a_.finds(block_name(1)));
  const struct stat found = a_->stat_of(must(a_->resolve(block_name(1))));
  EXPECT_EQ(S_IFREG | 0600U, found.st_mode);
  EXPECT_EQ(1000U, found.st_uid);
  a_.stop();
  a_.run();
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return must(a_->catalog().list_owner_changes("", 10)).empty(); }));
  EXPECT_TRUE(TestVolume::wait_for([&] {
    const Result<InodeNumber> there = b_->resolve(block_name(1));
    return there.ok() && b_->stat_of(*there).st_uid == 1000U;
  }));
  EXPECT_EQ("block", b_.read(block_name(1)));
}

TEST_P(SharedOwners, FilesOfOthersAreTakenOver) {
  std::filesystem::create_directories(below("model/0"));
  put_on_pool("model/0/" + block_name(1), "theirs");
  std::filesystem::create_symlink("/etc/passwd", below("model/link"));
  EXPECT_EQ("theirs", b_.read("model/0/" + block_name(1)));
  const struct stat file = b_->stat_of(must(b_->resolve("model/0/" + block_name(1))));
  EXPECT_EQ(S_IFREG | 0640U, file.st_mode);
  EXPECT_EQ(7U, file.st_uid);
  EXPECT_EQ(8U, file.st_gid);
  EXPECT_EQ(S_IFDIR | 0750U, b_->stat_of(must(b_->resolve("model"))).st_mode);
  EXPECT_EQ(kMissing, b_.read("model/link"));
  EXPECT_EQ(kMissing, b_.read(".kvcachefs/pool"));
}

INSTANTIATE_TEST_SUITE_P(All, SharedOwners, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
