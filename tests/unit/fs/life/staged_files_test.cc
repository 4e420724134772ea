#include "fs/life/staged_files.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

TEST(StagedFiles, AreCountedUntilTheyAreTaken) {
  StagedFiles files;
  EXPECT_TRUE(files.add({.inode = 1, .object = 10, .bytes = 100, .since = 5}));
  EXPECT_FALSE(files.add({.inode = 1, .object = 10, .bytes = 100, .since = 6})) << "twice";
  EXPECT_TRUE(files.add({.inode = 2, .object = 20, .bytes = 50, .since = 6}));
  EXPECT_EQ(150u, files.bytes());
  EXPECT_EQ(2u, files.size());
  const auto taken = files.take(10);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(1u, taken->inode);
  EXPECT_FALSE(files.take(10).has_value());
  EXPECT_EQ(50u, files.bytes());
}

TEST(StagedFiles, TheOldestGoesFirstAndOnlyWhenItIsOldEnough) {
  StagedFiles files;
  for (ObjectId object = 1; object <= 3; ++object)
    files.add({.inode = object,
               .object = object,
               .bytes = 1,
               .since = static_cast<std::int64_t>(object)});
  files.take(1);
  EXPECT_FALSE(files.take_older_than(2).has_value());
  const auto oldest = files.take_older_than(3);
  ASSERT_TRUE(oldest.has_value());
  EXPECT_EQ(2u, oldest->object);
  EXPECT_EQ(3u, files.take_older_than(100)->object);
  EXPECT_FALSE(files.take_older_than(100).has_value());
  EXPECT_EQ(0u, files.bytes());
}

}  // namespace
}  // namespace kvcachefs
