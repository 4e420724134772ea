// How the bytes of an open file travel.
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

ServeMode mode_of_open(TestVolume& volume, InodeNumber inode, int flags) {
  const Opened opened = must(volume->open(inode, flags, TestVolume::kRoot));
  volume->release(*opened.file);
  return opened.mode;
}

TEST(ServeModes, WithoutPassthroughTheFirstReaderOfALargeFileStreams) {
  TestVolume volume;
  const InodeNumber large = volume.store_file(kRootInode, "large", std::string(2 << 20, 'x'));
  const InodeNumber small = volume.store_file(kRootInode, "small", "x");
  EXPECT_EQ(ServeMode::kDirect, mode_of_open(volume, large, O_RDONLY));
  EXPECT_EQ(ServeMode::kCached, mode_of_open(volume, large, O_RDONLY))
      << "the second comes again";
  EXPECT_EQ(ServeMode::kCached, mode_of_open(volume, large, O_RDONLY));
  EXPECT_EQ(ServeMode::kCached, mode_of_open(volume, small, O_RDONLY));
  EXPECT_EQ(ServeMode::kDirect, mode_of_open(volume, large, O_RDWR)) << "a writer never caches";
}

}  // namespace
}  // namespace kvcachefs
