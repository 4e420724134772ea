// Which inodes are in memory.
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

TEST(InodeTable, MillionsThatTheKernelKnowsAreNotAllInMemory) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  constexpr int kNames = 70'000;
  for (int i = 0; i < kNames; ++i) {
    must(volume->make_node(dir, std::to_string(i), S_IFIFO | 0600, 0, kRoot));
  }
  EXPECT_LT(volume->counts().inodes_cached, 66'000u);
  // None of them was forgotten, and each still answers.
  for (int i = 0; i < kNames; i += 97) {
    const Entry entry = must(volume->lookup(dir, std::to_string(i)));
    EXPECT_TRUE(S_ISFIFO(must(volume->attributes(entry.inode)).attributes.st_mode));
  }
}

TEST(InodeTable, AnUnlinkedInodeStaysUntilTheKernelForgetsIt) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  const InodeNumber inode = volume.store_file(dir, "f", "bytes");
  must(volume->unlink(dir, "f"));
  // Somebody has it by a descriptor of O_PATH; others push it out of what was used last.
  for (int i = 0; i < 70'000; ++i) {
    must(volume->make_node(dir, std::to_string(i), S_IFIFO | 0600, 0, kRoot));
  }
  EXPECT_EQ(0u, must(volume->attributes(inode)).attributes.st_nlink);
  EXPECT_EQ("bytes", must(volume.read(inode)));
  volume->forget(inode, 100);
  EXPECT_ERROR(ESTALE, volume->attributes(inode));
}

}  // namespace
}  // namespace kvcachefs
