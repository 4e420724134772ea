// What was closed and may be mapped: who holds it, and in which turns it is looked at.
#include "fs/budget/mapped_files.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace kvcachefs {
namespace {

class MappedFilesTest : public ::testing::Test {
 protected:
  void close(uid_t user, InodeNumber inode, ObjectId object = 1) {
    auto hold = open_.open({.inode = inode, .user = user, .tenant = 3, .bytes = 10});
    mapped_.add({.user = user, .inode = inode, .object = object}, std::move(*hold));
  }
  static std::vector<InodeNumber> inodes(const std::vector<MappedFiles::File>& files) {
    std::vector<InodeNumber> out;
    for (const auto& file : files) out.push_back(file.inode);
    return out;
  }

  OpenBytes open_;  // outlives the holds
  MappedFiles mapped_;
};

TEST_F(MappedFilesTest, AreLookedAtInTurns) {
  EXPECT_TRUE(mapped_.next(5).empty());
  for (InodeNumber inode = 1; inode <= 3; ++inode) close(7, inode);
  close(8, 1);
  EXPECT_EQ((std::vector<InodeNumber>{1, 2, 3}), inodes(mapped_.next(3)));
  EXPECT_EQ((std::vector<InodeNumber>{1, 1, 2}), inodes(mapped_.next(3)));
  // No more than there are.
  EXPECT_EQ(4U, mapped_.next(100).size());
  EXPECT_EQ((std::vector<InodeNumber>{1, 2}), inodes(mapped_.next_of(7, 2)));
  EXPECT_EQ((std::vector<InodeNumber>{3, 1}), inodes(mapped_.next_of(7, 2)));
  EXPECT_EQ((std::vector<InodeNumber>{1}), inodes(mapped_.next_of(8, 2)));
  EXPECT_TRUE(mapped_.next_of(9, 2).empty());
}

TEST_F(MappedFilesTest, CountForTheirTenantUntilItIsKnown) {
  close(7, 1);
  close(7, 2);
  close(7, 1);
  EXPECT_EQ(20U, mapped_.unknown_of(3));
  mapped_.set_known({.user = 7, .inode = 1, .object = 1});
  EXPECT_EQ(10U, mapped_.unknown_of(3));
  mapped_.remove({.user = 7, .inode = 1, .object = 1});
  // Rewritten since.
  mapped_.remove({.user = 7, .inode = 2, .object = 99});
  EXPECT_EQ(10U, mapped_.unknown_of(3));
  EXPECT_EQ(1U, mapped_.next(5).size());
  mapped_.remove({.user = 7, .inode = 2, .object = 1});
  EXPECT_EQ(0U, mapped_.unknown_of(3));
  EXPECT_TRUE(mapped_.next(5).empty());
}

TEST_F(MappedFilesTest, AreHeldUntilTheyAreRemoved) {
  open_.set_most_bytes(15, {});
  close(7, 1);
  EXPECT_FALSE(open_.open({.inode = 2, .user = 7, .bytes = 10}));
  mapped_.remove({.user = 7, .inode = 1, .object = 1});
  EXPECT_TRUE(open_.open({.inode = 2, .user = 7, .bytes = 10}));
}

}  // namespace
}  // namespace kvcachefs
