// What the reaper could not remove when its turn came goes later, in the same run.
#include <fcntl.h>
#include <sys/mman.h>

#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

// A file that was sealed and then unlinked; nobody reaps yet. Its backing file.
std::string unlink_one(TestVolume& volume) {
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume->forget(inode, 1);
  volume.settle();
  std::string backing = volume.backing_path_of(must(volume.resolve("f")));
  must(volume->unlink(kRootInode, "f"));
  return backing;
}

bool has_orphans(TestVolume& volume) {
  return !must(volume.catalog().list_orphan_inodes(0, 1)).empty() ||
         !must(volume.catalog().list_orphan_objects(0, 1)).empty();
}

TEST(Reaper, UnlinksAgainWhatADeviceRefused) {
  TestVolume volume;
  const std::string backing = unlink_one(volume);
  volume.faults().no_removal = true;
  volume.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume.faults().failed > 0; }));
  EXPECT_TRUE(TestVolume::exists(backing));
  volume.faults().no_removal = false;
  EXPECT_TRUE(TestVolume::wait_for([&] { return !TestVolume::exists(backing); }));
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return volume->room_on(0).usage.all() == 0 && !has_orphans(volume); }));
}

TEST(Reaper, GoesOnWhenTheDatabaseDoes) {
  TestVolume volume;
  const std::string backing = unlink_one(volume);
  volume.faults().no_commit = true;
  volume.start();
  // By the walk over the last run's orphans, and when its turn in the queue came. Nobody else writes.
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume.faults().failed > 1; }));
  volume.faults().no_commit = false;
  EXPECT_TRUE(TestVolume::wait_for([&] { return !has_orphans(volume); }));
  EXPECT_FALSE(TestVolume::exists(backing));
}

TEST(Reaper, LeavesWhatIsOpenToItsLastClose) {
  TestVolume volume;
  const std::string backing = unlink_one(volume);
  const Created open = volume.create(kRootInode, "open");
  const std::string open_backing = volume.backing_path_of(open.entry.inode);
  const Created unnamed = must(volume->make_tmpfile(kRootInode, 0600, O_RDWR, kRoot));
  const std::string unnamed_backing = volume.backing_path_of(unnamed.entry.inode);
  volume->forget(open.entry.inode, 1);
  must(volume->unlink(kRootInode, "open"));
  volume.start();
  // The walk over the last run's orphans meets these, too.
  ASSERT_TRUE(TestVolume::wait_for([&] { return !TestVolume::exists(backing); }));
  volume.write(*open.opened.file, "still mine");
  EXPECT_TRUE(TestVolume::exists(open_backing));
  EXPECT_TRUE(TestVolume::exists(unnamed_backing));
  volume->release(*open.opened.file);
  volume->release(*unnamed.opened.file);
  volume->forget(unnamed.entry.inode, 1);
  EXPECT_TRUE(TestVolume::wait_for([&] {
    return !TestVolume::exists(open_backing) && !TestVolume::exists(unnamed_backing);
  }));
}

// The daemon has it open itself, as while it seals it: who else has it cannot be seen.
TEST(Reaper, AsksAgainWhatItCannotTell) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.settle();
  const std::string backing = volume.backing_path_of(inode);
  UniqueFd own(::open(backing.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(own);
  constexpr std::size_t kPage = 4096;
  void* const mapping = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, own.get(), 0);
  ASSERT_NE(MAP_FAILED, mapping);
  volume.start();
  OpenFile& file = volume.open(inode, O_WRONLY | O_TRUNC);
  volume.write(file, "others");
  volume->release(file);
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume.faults().uses_asked > 0; }));
  own.reset();
  // The mapping is known by a later question, and nothing has gone until then.
  const std::uint64_t asked = volume.faults().uses_asked;
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume.faults().uses_asked > asked; }));
  EXPECT_TRUE(TestVolume::exists(backing));
  ASSERT_EQ(0, ::munmap(mapping, kPage));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !TestVolume::exists(backing); }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !has_orphans(volume); }));
}

}  // namespace
}  // namespace kvcachefs
