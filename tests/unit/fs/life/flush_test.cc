// What a flush waits for on this machine: the files that were closed when it began, and the database.
#include "fs/flush.h"

#include <fcntl.h>

#include <string>

#include "tests/fakes/test_volume.h"

namespace kvcachefs::testing {
namespace {

const Caller& kRoot = TestVolume::kRoot;

// One look of a flush that has begun with `since`.
Flush look(TestVolume& volume, const std::string& path = "", const FlushPoint& since = {}) {
  return must(volume->flush(path, since));
}

bool is_done(const Flush& flush) { return flush.unsealed.files == 0 && !flush.is_syncing; }

// Looks until nothing is waited for.
Flush flush(TestVolume& volume, const std::string& path = "") {
  Flush seen = look(volume, path);
  EXPECT_TRUE(TestVolume::wait_for([&] {
    seen = look(volume, path, seen.since);
    return is_done(seen);
  }));
  return seen;
}

TEST(Flush, SealsWhatWasClosed) {
  TestVolume volume;
  volume.start();
  const InodeNumber d = volume.mkdir(kRootInode, "d");
  for (int i = 0; i < 20; ++i) {
    const InodeNumber file = volume.store_file(d, "f" + std::to_string(i), "bytes");
    const Flush done = flush(volume);
    EXPECT_EQ(DataState::kSealed, volume.state_of(file));
    EXPECT_FALSE(done.has_pool);
    EXPECT_EQ(0U, done.unsealed.open);
    EXPECT_EQ(0U, volume->counts().unsealed);
  }
}

// Nothing seals: the volume has not been started.
TEST(Flush, DoesNotWaitForAFileThatIsWritten) {
  TestVolume volume;
  const InodeNumber closed = volume.store_file(kRootInode, "closed", "bytes");
  const InodeNumber open = volume.store_file(kRootInode, "open", "bytes");
  OpenFile& writer = volume.open(open, O_WRONLY);
  const Flush first = look(volume);
  EXPECT_EQ(1U, first.unsealed.files);
  EXPECT_EQ(1U, first.unsealed.open);
  // A program that only reads it changes nothing.
  OpenFile& reader = volume.open(closed, O_RDONLY);
  EXPECT_EQ(1U, look(volume, "", first.since).unsealed.files);
  volume->release(reader);
  // One that is rewritten over and over.
  volume.rewrite(closed, "others");
  const Flush second = look(volume, "", first.since);
  EXPECT_EQ(0U, second.unsealed.files);
  EXPECT_EQ(2U, second.unsealed.open);
  // Another flush waits for it.
  EXPECT_EQ(1U, look(volume).unsealed.files);
  volume.close(writer);
}

// close(2) does not wait for the RELEASE that ends the writing.
TEST(Flush, KnowsFilesThatAreBeingClosed) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  volume.write(*made.opened.file, "bytes");
  EXPECT_EQ(1U, look(volume).unsealed.open);
  must(volume->flush(*made.opened.file, kRoot));
  const Flush first = look(volume);
  EXPECT_EQ(0U, first.unsealed.open);
  EXPECT_EQ(1U, first.unsealed.closing);
  // It was a duplicate of the descriptor.
  volume.write(*made.opened.file, "more bytes");
  EXPECT_EQ(1U, look(volume, "", first.since).unsealed.open);
  must(volume->flush(*made.opened.file, kRoot));
  OpenFile& other = volume.open(made.entry.inode, O_WRONLY);
  EXPECT_EQ(1U, look(volume).unsealed.open);
  volume.close(other);
  EXPECT_EQ(1U, look(volume).unsealed.closing);
  volume->release(*made.opened.file);
  const Flush last = look(volume);
  EXPECT_EQ(0U, last.unsealed.closing + last.unsealed.open);
  EXPECT_EQ(1U, last.unsealed.files);
}

TEST(Flush, DoesNotWaitForFilesThatWereMadeLater) {
  TestVolume volume;
  volume.store_file(kRootInode, "before", "bytes");
  const Flush first = look(volume);
  volume.store_file(kRootInode, "after", "bytes");
  EXPECT_EQ(1U, look(volume, "", first.since).unsealed.files);
  EXPECT_EQ(2U, look(volume).unsealed.files);
}

TEST(Flush, OfAPathWaitsForWhatIsBelowIt) {
  TestVolume volume;
  const InodeNumber d = volume.mkdir(kRootInode, "d");
  const InodeNumber e = volume.mkdir(d, "e");
  volume.mkdir(kRootInode, "de");
  volume.store_file(kRootInode, "f", "bytes");
  volume.store_file(d, "f", "bytes");
  const InodeNumber linked = volume.store_file(e, "f", "bytes");
  EXPECT_EQ(3U, look(volume).unsealed.files);
  EXPECT_EQ(2U, look(volume, "d").unsealed.files);
  EXPECT_EQ(1U, look(volume, "d/e").unsealed.files);
  EXPECT_EQ(1U, look(volume, "d/f").unsealed.files);
  EXPECT_EQ(0U, look(volume, "de").unsealed.files);
  must(volume->link(linked, must(volume.resolve("de")), "g", kRoot));
  EXPECT_EQ(1U, look(volume, "de").unsealed.files);
  // What has no name goes with its last descriptor.
  must(volume->unlink(kRootInode, "f"));
  EXPECT_EQ(2U, look(volume).unsealed.files);
}

TEST(Flush, IsNotDoneWhileTheDatabaseIsNotOnTheDisk) {
  TestVolume volume;
  volume.start();
  // The first file of a run syncs the database: it takes numbers.
  const InodeNumber file = volume.store_file(kRootInode, "f", "bytes");
  volume.faults().no_store_sync = true;
  Flush seen = look(volume);
  ASSERT_TRUE(TestVolume::wait_for([&] {
    seen = look(volume, "", seen.since);
    return seen.unsealed.files == 0;
  }));
  EXPECT_EQ(DataState::kSealed, volume.state_of(file));
  // It is tried again at each look, and fails.
  const std::uint64_t failed = volume.faults().failed;
  ASSERT_TRUE(TestVolume::wait_for([&] {
    seen = look(volume, "", seen.since);
    EXPECT_TRUE(seen.is_syncing);
    return volume.faults().failed >= failed + 3;
  }));
  volume.faults().no_store_sync = false;
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_done(look(volume, "", seen.since)); }));
}

TEST(Flush, IncludesNamesThatWereGivenAfterTheSeal) {
  TestVolume volume;
  volume.start();
  volume.store_file(kRootInode, "f.tmp", "bytes");
  flush(volume);
  volume.faults().no_store_sync = true;
  must(volume->rename(kRootInode, "f.tmp", kRootInode, "f", 0));
  const Flush seen = look(volume);
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume.faults().failed > 0; }));
  EXPECT_FALSE(is_done(look(volume, "", seen.since)));
  volume.faults().no_store_sync = false;
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_done(look(volume, "", seen.since)); }));
}

TEST(Flush, SaysWhatADiskHasRefused) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "f", "bytes");
  volume.faults().unsyncable = {volume.record_of(file).object};
  const Flush before = look(volume);
  EXPECT_EQ(0U, before.poisoned);
  EXPECT_EQ(1U, before.unsealed.files);
  volume.start();
  EXPECT_EQ(1U, flush(volume).poisoned);
  EXPECT_ERROR(ENOENT, volume.resolve("f"));
}

}  // namespace
}  // namespace kvcachefs::testing
