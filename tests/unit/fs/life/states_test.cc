// The states of a file's data while nothing goes wrong.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "backend/base/crc32c.h"
#include "fs/node/open_file.h"
#include "tests/fakes/promise.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

std::uint32_t sum_of(std::string_view bytes) {
  return crc32c(0, std::as_bytes(std::span(bytes.data(), bytes.size())));
}

TEST(States, ANewFileIsUnpublishedUntilItsFlush) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  EXPECT_EQ(DataState::kUnpublished, volume.state_of(made.entry.inode));
  EXPECT_EQ(1u, volume->counts().unsealed);
  volume.write(*made.opened.file, "bytes");
  EXPECT_OK(volume->flush(*made.opened.file, kRoot));
  InodeRecord record = volume.record_of(made.entry.inode);
  EXPECT_EQ(DataState::kPublished, record.state);
  EXPECT_EQ(5u, record.stamp.size);
  // FLUSH is not the end of writing: the next one, or the release, takes a new stamp.
  volume.write(*made.opened.file, "more bytes");
  volume->release(*made.opened.file);
  record = volume.record_of(made.entry.inode);
  EXPECT_EQ(DataState::kPublished, record.state);
  EXPECT_EQ(10u, record.stamp.size);
}

TEST(States, AReadersFlushPublishesNothing) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  OpenFile& reader = volume.open(made.entry.inode, O_RDONLY);
  EXPECT_OK(volume->flush(reader, kRoot));
  EXPECT_EQ(DataState::kUnpublished, volume.state_of(made.entry.inode));
  volume->release(reader);
  volume.close(*made.opened.file);
}

TEST(States, TheSealRecordsTheChecksumsOfTheBytes) {
  TestVolume volume;
  std::string bytes(kChecksumChunk + 1000, 'x');
  bytes[kChecksumChunk + 5] = 'y';
  const InodeNumber inode = volume.store_file(kRootInode, "f", bytes);
  volume.settle();
  const InodeRecord record = volume.record_of(inode);
  EXPECT_EQ(DataState::kSealed, record.state);
  EXPECT_EQ(bytes.size(), record.stamp.size);
  const ObjectRecord object = *must(volume.catalog().find_object(record.object));
  EXPECT_EQ(inode, object.inode);
  EXPECT_EQ(record.stamp, object.sealed);
  const std::vector<std::uint32_t> expected{sum_of(bytes.substr(0, kChecksumChunk)),
                                            sum_of(bytes.substr(kChecksumChunk))};
  EXPECT_EQ(expected, object.chunk_crc32c);
  EXPECT_TRUE(must(volume.catalog().list_unsealed(0, 10)).empty());
}

TEST(States, TheSealCountsHolesAsZeros) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  volume.write(*made.opened.file, "end", 3 * kChecksumChunk);
  volume.close(*made.opened.file);
  volume.settle();
  const ObjectRecord object =
      *must(volume.catalog().find_object(volume.record_of(made.entry.inode).object));
  const std::uint32_t zeros = sum_of(std::string(kChecksumChunk, '\0'));
  EXPECT_EQ((std::vector<std::uint32_t>{zeros, zeros, zeros, sum_of("end")}),
            object.chunk_crc32c);
}

TEST(States, TheSealerWaitsForTheLastWriter) {
  TestVolume volume;
  volume.start();
  const Created made = volume.create(kRootInode, "f");
  volume.write(*made.opened.file, "bytes");
  EXPECT_OK(volume->flush(*made.opened.file, kRoot));
  // Another file's seal shows that the sealer has been here.
  const InodeNumber other = volume.store_file(kRootInode, "other", "x");
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return volume.state_of(other) == DataState::kSealed; }));
  EXPECT_EQ(DataState::kPublished, volume.state_of(made.entry.inode));
  volume->release(*made.opened.file);
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return volume.state_of(made.entry.inode) == DataState::kSealed; }));
  // A seal counts when it is on the disk.
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().sealed_total == 2; }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().unsealed == 0; }));
}

TEST(States, EmptyAndManyFilesAreSealed) {
  TestVolume volume;
  std::vector<InodeNumber> inodes;
  for (int i = 0; i < 200; ++i)
    inodes.push_back(volume.store_file(kRootInode, std::to_string(i),
                                       std::string(static_cast<std::size_t>(i), 'z')));
  EXPECT_EQ(200u, volume->counts().unsealed);
  volume.settle();
  for (const InodeNumber inode : inodes) EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  EXPECT_EQ(0u, volume->counts().unsealed);
}

TEST(States, OpenForWritingMakesASealedFileMutable) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.settle();
  volume->release(volume.open(inode, O_RDONLY));
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  OpenFile& writer = volume.open(inode, O_RDWR);
  EXPECT_EQ(DataState::kMutable, volume.state_of(inode));
  volume.write(writer, "BYTES");
  volume.close(writer);
  volume.settle();
  const InodeRecord record = volume.record_of(inode);
  EXPECT_EQ(DataState::kSealed, record.state);
  EXPECT_EQ(std::vector<std::uint32_t>{sum_of("BYTES")},
            must(volume.catalog().find_object(record.object))->chunk_crc32c);
}

TEST(States, AFileClosedUnchangedIsSealedWithTheChecksumsItHad) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.settle();
  // A record that no reading of the file would give.
  const ObjectId id = volume.record_of(inode).object;
  ObjectRecord object = *must(volume.catalog().find_object(id));
  object.chunk_crc32c = {12345};
  Edit edit;
  edit.put_object(id, object);
  must(volume.catalog().commit(std::move(edit)));
  volume.close(volume.open(inode, O_RDWR));
  volume.settle();
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  EXPECT_EQ(std::vector<std::uint32_t>{12345},
            must(volume.catalog().find_object(id))->chunk_crc32c);
}

TEST(States, RewritingStartsANewObjectAndDropsTheOldOneWhenItIsPublished) {
  TestVolume volume;
  volume.start();
  const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
  const std::string old_backing = volume.backing_path_of(inode);
  OpenFile& writer = volume.open(inode, O_WRONLY | O_TRUNC);
  InodeRecord record = volume.record_of(inode);
  EXPECT_EQ(DataState::kUnpublished, record.state);
  EXPECT_NE(kNoObject, record.previous_object);
  EXPECT_EQ(old_backing, volume.backing_path(record.previous_object));
  EXPECT_EQ(0, volume.stat_of(inode).st_size);
  volume.write(writer, "new!");
  EXPECT_TRUE(TestVolume::exists(old_backing));
  volume.close(writer);
  record = volume.record_of(inode);
  EXPECT_EQ(DataState::kPublished, record.state);
  EXPECT_EQ(kNoObject, record.previous_object);
  EXPECT_TRUE(TestVolume::wait_for([&] { return !TestVolume::exists(old_backing); }));
  EXPECT_EQ("new!", must(volume.read(inode)));
}

TEST(States, RewritingUnderAReaderTruncatesInPlace) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
  const ObjectId object = volume.record_of(inode).object;
  OpenFile& reader = volume.open(inode, O_RDONLY);
  OpenFile& writer = volume.open(inode, O_WRONLY | O_TRUNC);
  const InodeRecord record = volume.record_of(inode);
  EXPECT_EQ(object, record.object);
  EXPECT_EQ(DataState::kMutable, record.state);
  // Who rewrites it says nothing of how long it is needed, whoever else reads it just then.
  EXPECT_EQ(0u, record.flags & kInodeKeep);
  volume->release(reader);
  volume.close(writer);
}

TEST(States, RewritingAnFsyncedFileTruncatesInPlace) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
  OpenFile& file = volume.open(inode, O_RDWR);
  EXPECT_OK(volume->fsync(file, false));
  volume.close(file);
  const ObjectId object = volume.record_of(inode).object;
  volume.rewrite(inode, "new");
  EXPECT_EQ(object, volume.record_of(inode).object);
  EXPECT_EQ("new", must(volume.read(inode)));
}

TEST(States, FsyncPublishesAndMarks) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  volume.write(*made.opened.file, "bytes");
  EXPECT_OK(volume->fsync(*made.opened.file, true));
  const InodeRecord record = volume.record_of(made.entry.inode);
  EXPECT_EQ(DataState::kPublished, record.state);
  EXPECT_EQ(kInodeFsynced | kInodeKeep, record.flags & (kInodeFsynced | kInodeKeep));
  volume.close(*made.opened.file);
}

TEST(States, TruncateOfAPublishedFileIsAChange) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.settle();
  SetAttributes change;
  change.size = 2;
  EXPECT_EQ(2, must(volume->set_attributes(inode, change, nullptr, kRoot)).attributes.st_size);
  const InodeRecord record = volume.record_of(inode);
  EXPECT_EQ(DataState::kMutable, record.state);
  EXPECT_NE(0u, record.flags & kInodeKeep);
  EXPECT_EQ("by", must(volume.read(inode)));
  volume.settle();
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
}

TEST(States, OtherTimesKeepTheSeal) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.settle();
  SetAttributes change;
  change.mtime = 1'000'000'001;
  EXPECT_OK(volume->set_attributes(inode, change, nullptr, kRoot));
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  EXPECT_EQ(1'000'000'001, to_nanos(volume.stat_of(inode).st_mtim));
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  // And its checksums.
  const InodeRecord record = volume.record_of(inode);
  EXPECT_EQ(record.stamp, must(volume.catalog().find_object(record.object))->sealed);
}

TEST(States, AChangeUnderASealIsFoundAndSealedAnew) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.settle();
  // What a mapping that outlived its descriptor does.
  const UniqueFd fd(::open(volume.backing_path_of(inode).c_str(), O_WRONLY));
  ASSERT_EQ(1, ::pwrite(fd.get(), "B", 1, 0));
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 7, .tv_nsec = 0}};
  ASSERT_EQ(0, ::futimens(fd.get(), times));
  EXPECT_EQ("Bytes", must(volume.read_path("f")));
  EXPECT_EQ(DataState::kMutable, volume.state_of(inode));
  EXPECT_EQ(0u, volume->counts().damaged);
  volume.settle();
  const InodeRecord record = volume.record_of(inode);
  EXPECT_EQ(DataState::kSealed, record.state);
  EXPECT_EQ(std::vector<std::uint32_t>{sum_of("Bytes")},
            must(volume.catalog().find_object(record.object))->chunk_crc32c);
}

TEST(States, AFileThatTheDiskRefusesIsPoisoned) {
  PROMISE(1);
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  must(volume->link(inode, kRootInode, "g"));
  volume.store_file(kRootInode, "good", "x");
  volume.faults().unsyncable.insert(volume.record_of(inode).object);
  volume.start();
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().poisoned == 1; }));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "g"));
  EXPECT_TRUE(volume.notifications().has_entry(kRootInode, "f"));
  EXPECT_TRUE(volume.notifications().has_entry(kRootInode, "g"));
  EXPECT_EQ("x", must(volume.read_path("good")));
}

// A new file of which a write is refused: its close says it, and it is a miss.
void expect_unpublished(TestVolume& volume, const std::string& name, bool is_seen) {
  const Created made = volume.create(kRootInode, name);
  volume.write(*made.opened.file, "bytes");
  volume->refused_write(*made.opened.file, is_seen);
  EXPECT_ERROR(EIO, volume->flush(*made.opened.file, kRoot));
  volume->release(*made.opened.file);
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, name));
}

// A write of a mapping, of which no call says what became of it.
TEST(States, AFileWithAWriteThatWasRefusedUnseenIsNotWhole) {
  PROMISE(1);
  TestVolume volume;
  // One that was not published: its close says it.
  expect_unpublished(volume, "new", /*is_seen=*/false);
  // Others go with their last close: one that was published, one that was sealed.
  const InodeNumber sealed = volume.store_file(kRootInode, "sealed", "bytes");
  volume.settle();
  const InodeNumber published = volume.store_file(kRootInode, "published", "bytes");
  // An application's own file has errors, and is there.
  const InodeNumber synced = volume.store_file(kRootInode, "synced", "bytes");
  volume.sync(synced);
  const std::uint64_t before = volume->counts().poisoned;
  for (const InodeNumber inode : {sealed, published, synced}) {
    OpenFile& writer = volume.open(inode, O_RDWR);
    volume.write(writer, "BYTES");
    volume->refused_write(writer, false);
    must(volume->flush(writer, kRoot));
    volume->release(writer);
  }
  EXPECT_EQ(before + 2, volume->counts().poisoned);
  volume.start();
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "sealed"));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "published"));
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return volume.state_of(synced) == DataState::kSealed; }));
  EXPECT_EQ("BYTES", must(volume.read_path("synced")));
  // A file that is written anew under such a name is another one.
  volume.store_file(kRootInode, "new", "whole");
  EXPECT_EQ("whole", must(volume.read_path("new")));
}

// Of a write(2) its application hears.
TEST(States, ANewFileWithAWriteThatWasRefusedIsNotPublished) {
  PROMISE(1);
  TestVolume volume;
  expect_unpublished(volume, "new", /*is_seen=*/true);
  const InodeNumber published = volume.store_file(kRootInode, "published", "bytes");
  OpenFile& writer = volume.open(published, O_RDWR);
  volume->refused_write(writer, true);
  volume->release(writer);
  EXPECT_EQ("bytes", must(volume.read_path("published")));
}

// The file that it replaces is as good as before.
TEST(States, ATornRewriteBringsTheOldBytesBack) {
  PROMISE(1);
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
  volume.settle();
  volume.start();
  OpenFile& writer = volume.open(inode, O_WRONLY | O_TRUNC);
  const InodePtr held = writer.inode;
  volume.write(writer, "ne");
  volume->refused_write(writer, false);
  EXPECT_ERROR(EIO, volume->flush(writer, kRoot));
  volume->release(writer);
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().poisoned == 1; }));
  EXPECT_EQ("old", must(volume.read_path("f")));
}

TEST(States, WhatIsToBeKeptOutlivesADiskThatRefusesItForAMoment) {
  TestVolume volume;
  const InodeNumber synced = volume.store_file(kRootInode, "synced", "one");
  volume.sync(synced);
  volume.rewrite(synced, "two");
  const InodeNumber kept = volume.store_file(kRootInode, "kept", "bytes");
  EXPECT_OK(volume->set_xattr(kept, "user.kvcachefs.policy", "keep", 0, kRoot));
  volume.store_file(kRootInode, "cache", "bytes");
  for (const InodeNumber inode : {synced, kept, must(volume.resolve("cache"))})
    volume.faults().unsyncable.insert(volume.record_of(inode).object);
  volume.start();
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().poisoned == 1; }));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "cache"));
  volume.stop_cleanly();
  volume.run();
  EXPECT_EQ("two", must(volume.read_path("synced")));
  EXPECT_EQ("bytes", must(volume.read_path("kept")));
  volume.settle();
  EXPECT_EQ(DataState::kSealed, volume.state_of(synced));
  EXPECT_EQ(DataState::kSealed, volume.state_of(kept));
}

// What a failed write(2) leaves; in memory alone, so the inode is to be held.
InodePtr let_its_writing_fail(OpenFile& file) {
  const std::lock_guard lock(file.inode->mutex);
  file.inode->record.flags |= kInodePoisoned;
  return file.inode;
}

InodePtr fail_to_rewrite(TestVolume& volume, InodeNumber inode) {
  OpenFile& writer = volume.open(inode, O_WRONLY | O_TRUNC);
  InodePtr held = let_its_writing_fail(writer);
  EXPECT_ERROR(EIO, volume->flush(writer, kRoot));
  volume->release(writer);
  return held;
}

TEST(States, ARewriteThatFailsBringsTheOldBytesBack) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
  volume.settle();
  volume.start();
  OpenFile& writer = volume.open(inode, O_WRONLY | O_TRUNC);
  volume.write(writer, "ne");
  InodePtr held = let_its_writing_fail(writer);
  EXPECT_ERROR(EIO, volume->flush(writer, kRoot));
  volume->release(writer);
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().poisoned == 1; }));
  EXPECT_EQ("old", must(volume.read_path("f")));
  EXPECT_TRUE(volume.notifications().has_attributes(inode));
  held.reset();
  volume.stop_cleanly();
  volume.run();
  EXPECT_EQ("old", must(volume.read_path("f")));
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  EXPECT_EQ(1u, volume.objects());
}

TEST(States, WhoMakesAFailedRewriteAnewFindsTheOldBytes) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
  volume.settle();
  const InodePtr held = fail_to_rewrite(volume, inode);
  // The kernel looks it up once more then.
  EXPECT_ERROR(ESTALE, volume->create(kRootInode, "f", 0644, O_WRONLY, kRoot));
  EXPECT_ERROR(ESTALE, volume->create(kRootInode, "f", 0644, O_WRONLY, kRoot));
  EXPECT_ERROR(EEXIST, volume->create(kRootInode, "f", 0644, O_WRONLY | O_EXCL, kRoot));
  EXPECT_EQ("old", must(volume.read_path("f")));
  volume.rewrite(inode, "new");
  EXPECT_EQ("new", must(volume.read_path("f")));
}

TEST(States, WhoLooksForAFailedRewriteOrOpensItFindsTheOldBytes) {
  for (const bool opens : {false, true}) {
    TestVolume volume;
    const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
    volume.settle();
    const InodePtr held = fail_to_rewrite(volume, inode);
    if (opens) {
      volume.rewrite(inode, "new");
      EXPECT_EQ("new", must(volume.read_path("f")));
    } else {
      EXPECT_OK(volume->lookup(kRootInode, "f"));
      EXPECT_EQ("old", must(volume.read_path("f")));
      // What the kernel has of the failed one goes.
      EXPECT_TRUE(volume.notifications().has_data(inode));
    }
  }
}

// A reader opened what was being written.
TEST(States, WhoMakesAFailedRewriteAnewLosesNothingThatIsToBeKept) {
  for (const bool is_kept : {false, true}) {
    TestVolume volume;
    const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
    if (is_kept) must(volume->set_xattr(inode, "user.kvcachefs.policy", "pin", 0, kRoot));
    volume.settle();
    OpenFile& writer = volume.open(inode, O_WRONLY | O_TRUNC);
    OpenFile& reader = volume.open(inode, O_RDONLY);
    InodePtr held = let_its_writing_fail(writer);
    EXPECT_ERROR(EIO, volume->flush(writer, kRoot));
    volume->release(writer);
    const Result<Created> again = volume->create(kRootInode, "f", 0644, O_WRONLY, kRoot);
    EXPECT_EQ(is_kept ? EIO : 0, again.ok() ? 0 : again.error().code);
    volume->release(reader);
    EXPECT_EQ(is_kept ? "old" : "", must(volume.read_path("f")));
  }
}

TEST(States, WhatAFailedRewriteBringsBackIsSealed) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
  const InodePtr held = fail_to_rewrite(volume, inode);
  volume.start();
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return volume.state_of(inode) == DataState::kSealed; }));
  EXPECT_EQ("old", must(volume.read_path("f")));
}

TEST(States, AStopDoesNotPublishHalfAFile) {
  TestVolume volume;
  const InodeNumber old = volume.store_file(kRootInode, "old", "old");
  volume.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume.state_of(old) == DataState::kSealed; }));
  for (int i = 0; i < 50; ++i) {
    const Created made = volume.create(kRootInode, "half" + std::to_string(i));
    volume.write(*made.opened.file, "half");
    // For the sealer's pass that is under way when it stops.
    volume.store_file(kRootInode, "whole" + std::to_string(i), "whole");
  }
  volume.write(volume.open(old, O_WRONLY | O_TRUNC), "ne");
  volume.stop_cleanly();
  volume.run();
  EXPECT_EQ("old", must(volume.read_path("old")));
  for (int i = 0; i < 50; ++i) {
    EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "half" + std::to_string(i)));
    EXPECT_EQ("whole", must(volume.read_path("whole" + std::to_string(i))));
  }
}

// Its RELEASE was lost with the mount.
TEST(States, AStopSealsWhatWasClosedLast) {
  PROMISE(7);
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  volume.start();
  volume.write(*made.opened.file, "bytes");
  EXPECT_OK(volume->flush(*made.opened.file, kRoot));
  volume.stop_cleanly();
  volume.run();
  EXPECT_EQ(DataState::kSealed, volume.state_of(made.entry.inode));
}

TEST(States, ALinkDoesNotPublishWhatCouldNotBeWritten) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f.tmp");
  volume.write(*made.opened.file, "half");
  InodePtr held = let_its_writing_fail(*made.opened.file);
  EXPECT_ERROR(EIO, volume->link(made.entry.inode, kRootInode, "f", kRoot));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
  volume->release(*made.opened.file);
  held.reset();
  volume.settle();
  EXPECT_TRUE(volume.names_in(kRootInode).empty());
}

TEST(States, ATruncationThatFailsLeavesTheFileAsItWas) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.settle();
  volume.start();
  SetAttributes change;
  change.size = UINT64_MAX;  // no filesystem takes that
  EXPECT_FALSE(volume->set_attributes(inode, change, nullptr, kRoot).ok());
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return volume.state_of(inode) == DataState::kSealed; }));
  EXPECT_EQ(0u, volume.record_of(inode).flags & kInodeKeep);
  EXPECT_EQ("bytes", must(volume.read_path("f")));
}

TEST(States, TwoDevicesShareTheFiles) {
  TestVolume volume({.rocksdb = false, .devices = 2, .volume = {}});
  std::set<std::uint32_t> used;
  for (int i = 0; i < 8; ++i) {
    const InodeNumber inode =
        volume.store_file(kRootInode, std::to_string(i), std::to_string(i));
    used.insert(must(volume.catalog().find_object(volume.record_of(inode).object))->device);
  }
  EXPECT_EQ((std::set<std::uint32_t>{0, 1}), used);
  volume.settle();
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(std::to_string(i), must(volume.read_path(std::to_string(i))));
}

TEST(States, AChildThatClosesWhatItInheritedPublishesNothing) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  volume.write(*made.opened.file, "half");
  int ready[2];
  ASSERT_EQ(0, ::pipe2(ready, O_CLOEXEC));
  const pid_t child = ::fork();
  if (child == 0) {
    char none = 0;
    ::close(ready[1]);
    static_cast<void>(::read(ready[0], &none, 1));
    ::_exit(0);
  }
  const Caller other{.uid = 0, .gid = 0, .pid = child, .umask = 0};
  EXPECT_OK(volume->flush(*made.opened.file, other));
  EXPECT_EQ(DataState::kUnpublished, volume.state_of(made.entry.inode));
  EXPECT_OK(volume->flush(*made.opened.file, kRoot));
  EXPECT_EQ(DataState::kPublished, volume.state_of(made.entry.inode));
  ::close(ready[0]);
  ::close(ready[1]);
  ASSERT_EQ(child, ::waitpid(child, nullptr, 0));
  volume->release(*made.opened.file);
}

// Whether the thread waits for a lock; true where the kernel does not say.
bool waits_for_a_lock(pid_t thread) {
  std::ifstream told("/proc/self/task/" + std::to_string(thread) + "/syscall");
  std::string number;
  return !(told >> number) || number == std::to_string(SYS_futex);
}

TEST(States, ATruncationBesideTheSealIsNotSealedOver) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  std::atomic<pid_t> sealer{0};
  std::atomic<pid_t> truncating{0};
  std::atomic<bool> is_held{false};
  std::atomic<bool> seal{false};
  std::atomic<bool> truncate{false};
  volume.faults().on_read = [&](Table table, std::string_view key) {
    // The seal asks for standing checksums.
    if (table != Table::kObjects || key.empty() || sealer != 0) return;
    sealer = ::gettid();
    while (!seal) std::this_thread::yield();
  };
  volume.faults().on_write = [&] {
    if (truncating != ::gettid()) return;
    is_held = true;  // The inode's lock.
    while (!truncate) std::this_thread::yield();
  };
  volume.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return sealer != 0; }));
  std::thread other([&] {
    truncating = ::gettid();
    SetAttributes change;
    change.size = 2;
    EXPECT_OK(volume->set_attributes(inode, change, nullptr, kRoot));
  });
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_held.load(); }));
  seal = true;
  EXPECT_TRUE(TestVolume::wait_for([&] { return waits_for_a_lock(sealer); }));
  truncate = true;
  other.join();
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return volume.state_of(inode) == DataState::kSealed; }));
  EXPECT_EQ(2u, volume.record_of(inode).stamp.size);
  EXPECT_EQ("by", must(volume.read(inode)));
}

TEST(States, WhatItsCloseCouldNotPublishIsPublishedLater) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  volume.write(*made.opened.file, "bytes");
  volume.faults().no_commit = true;
  EXPECT_ERROR(EIO, volume->flush(*made.opened.file, kRoot));
  volume->release(*made.opened.file);
  EXPECT_EQ(DataState::kUnpublished, volume.state_of(made.entry.inode));
  volume.faults().no_commit = false;
  volume.start();
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return volume.state_of(made.entry.inode) == DataState::kSealed; }));
  EXPECT_EQ("bytes", must(volume.read_path("f")));
}

TEST(States, WhatADeviceDidNotOpenIsSealedLater) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.faults().no_open = true;
  volume.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume.faults().failed > 0; }));
  volume.faults().no_open = false;
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return volume.state_of(inode) == DataState::kSealed; }));
}

}  // namespace
}  // namespace kvcachefs
