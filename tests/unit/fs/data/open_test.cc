// How the bytes of an open file travel.
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;
using testing::TestVolumeOptions;

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

TEST(ServeModes, WithoutPassthroughWhoWritesMeetsNoReaderInThePageCache) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  const auto open = [&](int flags) {
    return must(volume->open(inode, flags, TestVolume::kRoot));
  };
  {
    const Opened reader = open(O_RDONLY);
    EXPECT_EQ(ServeMode::kCached, reader.mode);
    const Opened writer = open(O_RDWR);
    EXPECT_EQ(ServeMode::kCached, writer.mode);
    volume->release(*reader.file);
    EXPECT_EQ(ServeMode::kCached, mode_of_open(volume, inode, O_RDONLY));
    EXPECT_EQ(ServeMode::kCached, mode_of_open(volume, inode, O_WRONLY));
    volume->release(*writer.file);
  }
  const Opened writer = open(O_RDWR);
  EXPECT_EQ(ServeMode::kDirect, writer.mode);
  EXPECT_EQ(ServeMode::kDirect, mode_of_open(volume, inode, O_RDONLY));
  EXPECT_EQ(ServeMode::kDirect, mode_of_open(volume, inode, O_WRONLY));
  volume->release(*writer.file);
  EXPECT_EQ(ServeMode::kCached, mode_of_open(volume, inode, O_RDONLY));
}

// The kernel takes no backing file while `refuses`.
class FakeIds : public BackingIds {
 public:
  [[nodiscard]] bool available() const noexcept override { return true; }
  Result<int> open(int) override {
    if (refuses) return fail(ENOMEM, "refused");
    return ++last_;
  }
  void close(int) noexcept override {}
  bool refuses = false;

 private:
  int last_ = 0;
};

class FailedOpen : public ::testing::Test {
 protected:
  FailedOpen()
      : volume_(TestVolumeOptions{
            .rocksdb = false, .devices = 1, .volume = {}, .backing_ids = &ids_}) {
    inode_ = volume_.store_file(kRootInode, "f", "old bytes");
    volume_->forget(inode_, 1);
    volume_.settle();
    ids_.refuses = true;
  }
  Result<Opened> open(int flags) { return volume_->open(inode_, flags, TestVolume::kRoot); }

  FakeIds ids_;
  TestVolume volume_;
  InodeNumber inode_ = 0;
};

TEST_F(FailedOpen, ChangesNothing) {
  const InodeRecord before = volume_.record_of(inode_);
  ASSERT_EQ(DataState::kSealed, before.state);
  EXPECT_ERROR(ENOMEM, open(O_RDWR));
  EXPECT_EQ(before, volume_.record_of(inode_));
  ids_.refuses = false;
  EXPECT_EQ("old bytes", must(volume_.read(inode_)));
}

TEST_F(FailedOpen, TakesARewriteBack) {
  volume_.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume_->room_on(0).usage.complete; }));
  const std::uint64_t used = volume_->room_on(0).usage.all();
  EXPECT_ERROR(ENOMEM, open(O_WRONLY | O_TRUNC));
  EXPECT_EQ(DataState::kSealed, volume_.state_of(inode_));
  ids_.refuses = false;
  EXPECT_EQ("old bytes", must(volume_.read(inode_)));
  EXPECT_TRUE(TestVolume::wait_for([&] {
    const UsageSums usage = volume_->room_on(0).usage;
    return must(volume_.catalog().list_orphan_objects(0, 1)).empty() &&
           usage.evictable == used && usage.all() == used;
  }));
  volume_.rewrite(inode_, "new");
  EXPECT_EQ("new", must(volume_.read(inode_)));
}

TEST_F(FailedOpen, LeavesATruncatedFileToTheSealer) {
  ids_.refuses = false;
  OpenFile& reader = volume_.open(inode_, O_RDONLY);
  volume_.start();
  // Of who only reads nobody waits for a close.
  OpenFile& truncating = volume_.open(inode_, O_RDONLY | O_TRUNC);
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return volume_.state_of(inode_) == DataState::kSealed; }));
  EXPECT_EQ(0, volume_.stat_of(inode_).st_size);
  volume_->release(truncating);
  volume_->release(reader);
}

}  // namespace
}  // namespace kvcachefs
