#include "fs/life/drop_history.h"

#include <gtest/gtest.h>

#include <string>

namespace kvcachefs {
namespace {

Dropped dropped(DropReason reason, InodeNumber inode) {
  Dropped out;
  out.reason = reason;
  out.inode = inode;
  out.size = 10 * inode;
  return out;
}

TEST(DropHistory, KnowsWhatWasDroppedLast) {
  DropHistory history;
  EXPECT_FALSE(history.find("a/b").has_value());
  history.add_name("a/b", dropped(DropReason::kRoom, 1));
  history.add_name("a/c", dropped(DropReason::kLost, 2));
  history.add_name("a/b", dropped(DropReason::kAsked, 3));
  const auto found = history.find("a/b");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(DropReason::kAsked, found->reason);
  EXPECT_EQ(3u, found->inode);
  EXPECT_EQ(30u, found->size);
  EXPECT_EQ(DropReason::kLost, history.find("a/c")->reason);
  EXPECT_FALSE(history.find("a").has_value());
}

TEST(DropHistory, ForgetsTheOldest) {
  DropHistory history;
  history.add_name("first", dropped(DropReason::kRoom, 1));
  constexpr std::size_t kEnough = DropHistory::kMostBytes / sizeof(Dropped);
  for (std::size_t at = 0; at < kEnough; ++at)
    history.add_name(std::to_string(at), dropped(DropReason::kRoom, 2));
  EXPECT_FALSE(history.find("first").has_value());
  EXPECT_TRUE(history.find(std::to_string(kEnough - 1)).has_value());
}

TEST(DropHistory, CountsFilesAndBytesByReason) {
  DropHistory history;
  history.count(DropReason::kRoom, 5);
  history.count(DropReason::kRoom, 7);
  history.count(DropReason::kExpired, 1);
  const DropCounts counts = history.counts();
  EXPECT_EQ(2u, counts[static_cast<std::size_t>(DropReason::kRoom)].files);
  EXPECT_EQ(12u, counts[static_cast<std::size_t>(DropReason::kRoom)].bytes);
  EXPECT_EQ(1u, counts[static_cast<std::size_t>(DropReason::kExpired)].files);
  EXPECT_EQ(0u, counts[static_cast<std::size_t>(DropReason::kAsked)].files);
}

}  // namespace
}  // namespace kvcachefs
