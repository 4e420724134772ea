// The order of a session's entries.
#include "fs/names/session_order.h"

#include <dirent.h>

#include <algorithm>

#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

TEST(SessionOrder, IsThatOfThePositionsNotOfTheNames) {
  TestVolume volume;
  const InodeNumber prefix = volume.mkdir(kRootInode, "prefix");
  const InodeNumber session = volume.mkdir(volume.mkdir(kRootInode, "session"), "chat-1");
  EXPECT_TRUE(must(session_order(volume.catalog(), session)).empty());
  std::vector<SessionEntry> expected;
  // Not in order, with holes, and further apart than names sort.
  for (const std::uint32_t position : {10u, 2u, 0u, 100u, 9u, 999'999'999u, 11u}) {
    const std::string hash = "00000000000000000" + std::to_string(position);
    const InodeNumber block = volume.store_file(prefix, hash, std::to_string(position));
    must(volume->link(block, session, std::to_string(position)));
    expected.push_back({.position = position, .inode = block});
  }
  for (const char* name : {"01", "1000000000", "-1", "+1", "1 ", " 1", "1a", "a", "0x1", "tmp"})
    volume.store_file(session, name, "no position");
  volume.mkdir(session, "5");
  must(volume->make_symlink(session, "6", "0", TestVolume::kRoot));
  std::sort(expected.begin(), expected.end(),
            [](const auto& a, const auto& b) { return a.position < b.position; });
  EXPECT_EQ(expected, must(session_order(volume.catalog(), session)));
}

TEST(SessionOrder, TheSameBlockMayStandInManyPlaces) {
  TestVolume volume;
  const InodeNumber prefix = volume.mkdir(kRootInode, "prefix");
  const InodeNumber sessions = volume.mkdir(kRootInode, "session");
  const InodeNumber block = volume.store_file(prefix, "0123456789abcdef", "block");
  for (const char* name : {"a", "b"}) {
    const InodeNumber session = volume.mkdir(sessions, name);
    must(volume->link(block, session, "0"));
    must(volume->link(block, session, "7"));
    EXPECT_EQ((std::vector<SessionEntry>{{0, block}, {7, block}}),
              must(session_order(volume.catalog(), session)));
  }
  // The end of one session takes its links, and nothing of the other's.
  const InodeNumber a = must(volume.resolve("session/a"));
  EXPECT_OK(volume->unlink(a, "0"));
  EXPECT_OK(volume->unlink(a, "7"));
  EXPECT_OK(volume->rmdir(sessions, "a"));
  volume.settle();
  EXPECT_EQ("block", must(volume.read_path("session/b/7")));
  EXPECT_EQ("block", must(volume.read_path("prefix/0123456789abcdef")));
  EXPECT_EQ(3u, volume.stat_of(block).st_nlink);
}

TEST(SessionOrder, IsBounded) {
  TestVolume volume;
  const InodeNumber block = volume.store_file(kRootInode, "block", "block");
  const InodeNumber session = volume.mkdir(kRootInode, "session");
  for (int i = 0; i < 3000; ++i) must(volume->link(block, session, std::to_string(i)));
  EXPECT_EQ(2999u, must(session_order(volume.catalog(), session, 3000)).back().position);
  EXPECT_ERROR(E2BIG, session_order(volume.catalog(), session, 2999));
}

}  // namespace
}  // namespace kvcachefs
