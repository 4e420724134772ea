// Who may have how many attributes and long symlinks.
#include "fs/budget/metadata_bytes.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/promise.h"

namespace kvcachefs {
namespace {

constexpr std::uint64_t kBlock = MetadataBytes::kBlock;
constexpr std::uint64_t kName = MetadataBytes::kName;

InodeRecord symlink_of(uid_t owner, std::size_t length) {
  InodeRecord record;
  record.mode = S_IFLNK | 0777;
  record.uid = owner;
  record.nlink = 1;
  record.target = std::string(length, 't');
  return record;
}

InodeRecord file_of(uid_t owner, bool has_xattr) {
  InodeRecord record;
  record.mode = S_IFREG | 0600;
  record.uid = owner;
  record.nlink = 1;
  if (has_xattr) record.flags = kInodeHasXattr;
  return record;
}

// How many he may make.
std::size_t make_all(MetadataBytes& metadata, uid_t owner) {
  std::size_t count = 0;
  while (count < 1000 && metadata.check({}, symlink_of(owner, 4000)).ok()) {
    metadata.changed({}, symlink_of(owner, 4000));
    ++count;
  }
  return count;
}

TEST(MetadataBytes, WhatExt4KeepsInTheInodeCountsAsAName) {
  MetadataBytes metadata;
  metadata.changed({}, file_of(1, false));
  EXPECT_EQ(0U, metadata.all());
  metadata.changed({}, symlink_of(1, MetadataBytes::kShortTarget - 1));
  EXPECT_EQ(kName, metadata.all());
  metadata.changed({}, symlink_of(1, MetadataBytes::kShortTarget));
  EXPECT_EQ(kName + kBlock, metadata.all());
}

TEST(MetadataBytes, NamesBeyondAFilesFirstCount) {
  MetadataBytes metadata;
  metadata.set_most_bytes(3 * MetadataBytes::kPartOfBudget * kName);
  InodeRecord file = file_of(1, false);
  for (unsigned links = 0; links < 3; ++links) {
    InodeRecord next = file;
    ++next.nlink;
    ASSERT_OK(metadata.check(file, next));
    metadata.changed(file, next);
    file = next;
  }
  InodeRecord more = file;
  ++more.nlink;
  EXPECT_ERROR(ENOSPC, metadata.check(file, more));
  InodeRecord fifo;
  fifo.mode = S_IFIFO | 0600;
  fifo.uid = 1;
  fifo.nlink = 1;
  EXPECT_ERROR(ENOSPC, metadata.check({}, fifo));
  InodeRecord directory;
  directory.mode = S_IFDIR | 0700;
  directory.uid = 1;
  directory.nlink = 2;
  EXPECT_OK(metadata.check({}, directory));
  // An eviction takes all its names.
  InodeRecord gone = file;
  gone.nlink = 0;
  metadata.changed(file, gone);
  EXPECT_EQ(0U, metadata.all());
}

TEST(MetadataBytes, AreAPartOfTheBudget) {
  PROMISE(8);
  MetadataBytes metadata;
  metadata.set_most_bytes(16 * MetadataBytes::kPartOfBudget * kBlock);
  EXPECT_EQ(16U, make_all(metadata, 1));
  EXPECT_ERROR(ENOSPC, metadata.check({}, symlink_of(1, 4000)));
  // Others have their part all the same.
  EXPECT_EQ(8U, make_all(metadata, 2));
  // What takes no more is let in.
  EXPECT_OK(metadata.check({}, file_of(1, false)));
  EXPECT_OK(metadata.check(file_of(1, true), file_of(1, true)));
  EXPECT_ERROR(ENOSPC, metadata.check(file_of(1, false), file_of(1, true)));
}

TEST(MetadataBytes, FollowOwnersAndEnds) {
  MetadataBytes metadata;
  metadata.changed({}, file_of(1, false));
  metadata.changed(file_of(1, false), file_of(1, true));
  metadata.changed(file_of(1, true), file_of(2, true));
  const auto list = metadata.list();
  ASSERT_EQ(1U, list.size());
  EXPECT_EQ(std::pair(uid_t{2}, kBlock), list[0]);
  InodeRecord gone = file_of(2, true);
  gone.nlink = 0;
  metadata.changed(file_of(2, true), gone);
  EXPECT_EQ(0U, metadata.all());
  // What was never counted takes nothing from others.
  metadata.changed({}, symlink_of(3, 100));
  metadata.changed(file_of(2, true), gone);
  EXPECT_EQ(kBlock, metadata.all());
}

TEST(MetadataBytes, AreCountedAnewWhileTheyChange) {
  MetadataBytes metadata;
  metadata.restore({{1, 7 * kBlock}, {9, kBlock}});
  metadata.begin_recount();
  metadata.recount(file_of(1, true));
  metadata.recount(symlink_of(1, 100));
  // It goes before it is counted, as it was when the count began.
  InodeRecord gone = file_of(2, true);
  gone.nlink = 0;
  metadata.changed(file_of(2, true), gone);
  metadata.recount(file_of(2, true));
  metadata.changed({}, symlink_of(3, 100));
  EXPECT_EQ(9 * kBlock, metadata.all());
  metadata.end_recount(true);
  const auto list = metadata.list();
  ASSERT_EQ(2U, list.size());
  EXPECT_EQ(std::pair(uid_t{1}, 2 * kBlock), list[0]);
  EXPECT_EQ(std::pair(uid_t{3}, kBlock), list[1]);
  // One that was ended early says nothing.
  metadata.begin_recount();
  metadata.end_recount(false);
  EXPECT_EQ(list, metadata.list());
}

TEST(MetadataBytes, AreThereAfterARestart) {
  MetadataBytes before;
  for (uid_t user = 0; user < 5000; ++user)
    for (uid_t i = 0; i <= user % 3; ++i) before.changed({}, symlink_of(user, 100));
  EXPECT_EQ(MetadataBytes::kMostUsers, before.list().size());
  MetadataBytes after;
  after.restore(before.list());
  EXPECT_EQ(before.list(), after.list());
}

}  // namespace
}  // namespace kvcachefs
