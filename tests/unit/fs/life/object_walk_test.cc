// What the last run left is counted once, whatever happens to it meanwhile.
#include <fcntl.h>

#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

TEST(ObjectWalk, CountsWhatIsSealedJustBehindIt) {
  TestVolume volume;
  const InodeNumber first = volume.store_file(kRootInode, "first", "bytes");
  const InodeNumber second = volume.store_file(kRootInode, "second", "bytes");
  volume.settle();
  volume.open(first, O_RDWR);
  volume.crash_daemon();
  ASSERT_EQ(DataState::kMutable, volume.state_of(first));
  ASSERT_EQ(DataState::kSealed, volume.state_of(second));

  // The walk has passed the first one, and comes to the second when that is sealed.
  std::string key;
  for (int shift = 56; shift >= 0; shift -= 8)
    key += static_cast<char>(second >> static_cast<unsigned>(shift) & 0xff);
  std::atomic<bool> met{false};
  volume.faults().on_read = [&](Table table, std::string_view read) {
    if (table != Table::kInodes || read != key || met.exchange(true)) return;
    EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().sealed_total > 0; }));
  };
  volume.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume->room_on(0).usage.complete; }));
  EXPECT_TRUE(met);
  std::uint64_t occupied = 0;
  for (const InodeNumber inode : {first, second}) {
    struct stat backing {};
    ASSERT_EQ(0, ::stat(volume.backing_path_of(inode).c_str(), &backing));
    occupied += static_cast<std::uint64_t>(backing.st_blocks) * 512;
  }
  EXPECT_EQ(occupied, volume->room_on(0).usage.evictable);
  EXPECT_EQ(occupied, volume->room_on(0).usage.all());
}

}  // namespace
}  // namespace kvcachefs
