// What a start makes of what the last run left.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "tests/fakes/promise.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;
using testing::write_file;

TEST(Recovery, TellsTheKindsOfEndApart) {
  TestVolume volume;
  EXPECT_EQ("new", volume->recovery().kind);
  volume.settle();
  EXPECT_EQ("clean", volume->recovery().kind);
  volume.crash_daemon();
  EXPECT_EQ("daemon", volume->recovery().kind);
  volume.crash_machine();
  EXPECT_EQ("machine", volume->recovery().kind);
  // A crash of the daemon after a crash of the machine is one of the daemon.
  volume.crash_daemon();
  EXPECT_EQ("daemon", volume->recovery().kind);
}

TEST(Recovery, DaemonCrashDropsWhatWasNotPublished) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  const std::string backing = volume.backing_path_of(made.entry.inode);
  volume.write(*made.opened.file, "bytes");
  volume.crash_daemon();
  EXPECT_EQ(1u, volume->recovery().dropped);
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
  EXPECT_EQ(0u, volume->counts().unsealed);
  volume.settle();
  EXPECT_FALSE(TestVolume::exists(backing));
  EXPECT_EQ(0u, volume->counts().unsealed);
}

TEST(Recovery, DaemonCrashKeepsWhatWasPublishedAndEqual) {
  PROMISE(7);
  TestVolume volume;
  volume.store_file(kRootInode, "f", "bytes");
  volume.crash_daemon();
  EXPECT_EQ(0u, volume->recovery().dropped);
  EXPECT_EQ(1u, volume->counts().unsealed);
  EXPECT_EQ("bytes", must(volume.read_path("f")));
  volume.settle();
  EXPECT_EQ(DataState::kSealed, volume.state_of(must(volume.resolve("f"))));
}

TEST(Recovery, DaemonCrashDropsWhatChangedAfterItsFlush) {
  PROMISE(1);
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  EXPECT_OK(volume->flush(*made.opened.file, kRoot));
  volume.write(*made.opened.file, "bytes");
  volume.crash_daemon();
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
}

TEST(Recovery, DaemonCrashKeepsWhatWasFsyncedEvenIfItChanged) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  EXPECT_OK(volume->fsync(*made.opened.file, false));
  volume.write(*made.opened.file, "bytes");
  volume.crash_daemon();
  EXPECT_EQ("bytes", must(volume.read_path("f")));
}

TEST(Recovery, DaemonCrashKeepsMutableFiles) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  OpenFile& writer = volume.open(inode, O_RDWR);
  volume.write(writer, "BY");
  volume.crash_daemon();
  EXPECT_EQ("BYtes", must(volume.read_path("f")));
}

TEST(Recovery, DaemonCrashBringsTheOldBytesBack) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "old");
  const std::string old_backing = volume.backing_path_of(inode);
  OpenFile& writer = volume.open(inode, O_WRONLY | O_TRUNC);
  const std::string new_backing = volume.backing_path_of(inode);
  volume.write(writer, "new");
  volume.crash_daemon();
  EXPECT_EQ("old", must(volume.read_path("f")));
  EXPECT_EQ(old_backing, volume.backing_path_of(inode));
  EXPECT_EQ(DataState::kPublished, volume.state_of(inode));
  volume.settle();
  EXPECT_FALSE(TestVolume::exists(new_backing));
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
}

TEST(Recovery, MachineCrashBringsSealedBytesBackAndDropsOthers) {
  TestVolume volume;
  const InodeNumber sealed = volume.store_file(kRootInode, "sealed", "old");
  volume.settle();
  volume.store_file(kRootInode, "published", "old");
  for (const char* name : {"sealed", "published"})
    volume.write(volume.open(must(volume.resolve(name)), O_WRONLY | O_TRUNC), "new");
  volume.crash_machine();
  EXPECT_EQ("old", must(volume.read_path("sealed")));
  EXPECT_EQ(DataState::kSealed, volume.state_of(sealed));
  EXPECT_ERROR(ENOENT, volume.resolve("published"));
  EXPECT_EQ(0u, volume->counts().unsealed);
}

TEST(Recovery, MachineCrashKeepsSealedAndFsyncedOnly) {
  PROMISE(7);
  TestVolume volume;
  volume.store_file(kRootInode, "sealed", "sealed");
  volume.settle();
  volume.store_file(kRootInode, "published", "published");
  const Created fsynced = volume.create(kRootInode, "fsynced");
  volume.write(*fsynced.opened.file, "fsynced");
  EXPECT_OK(volume->fsync(*fsynced.opened.file, false));
  const Created unpublished = volume.create(kRootInode, "unpublished");
  volume.write(*unpublished.opened.file, "unpublished");
  volume.crash_machine();
  EXPECT_EQ((std::vector<std::string>{"sealed", "fsynced"}), volume.names_in(kRootInode));
  EXPECT_EQ("sealed", must(volume.read_path("sealed")));
  EXPECT_EQ("fsynced", must(volume.read_path("fsynced")));
  EXPECT_EQ(2u, volume->recovery().dropped);
}

TEST(Recovery, MachineCrashKeepsMutableFilesThatStillHaveTheirSealedBytes) {
  TestVolume volume;
  volume.store_file(kRootInode, "intact", "bytes");
  volume.store_file(kRootInode, "changed", "bytes");
  volume.store_file(kRootInode, "cut", "bytes");
  volume.settle();
  for (const char* name : {"intact", "changed", "cut"}) {
    OpenFile& writer = volume.open(must(volume.resolve(name)), O_RDWR);
    if (name == std::string("changed")) volume.write(writer, "B");
    if (name == std::string("cut")) {
      SetAttributes change;
      change.size = 3;
      EXPECT_OK(volume->set_attributes(must(volume.resolve(name)), change, &writer, kRoot));
    }
  }
  volume.crash_machine();
  EXPECT_EQ("bytes", must(volume.read_path("intact")));
  EXPECT_ERROR(ENOENT, volume.resolve("changed"));
  EXPECT_ERROR(ENOENT, volume.resolve("cut"));
}

void change_bytes_at(const std::string& backing, std::time_t seconds) {
  write_file(backing, "BYTES");
  const timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 0},
                             {.tv_sec = seconds, .tv_nsec = 0}};
  ASSERT_EQ(0, ::utimensat(AT_FDCWD, backing.c_str(), times, 0));
}
constexpr std::time_t kIn2001 = 1'000'000'000;
constexpr std::time_t kIn2096 = 4'000'000'000;

// It was ahead until the crash, or is behind since.
TEST(Recovery, AWrongWallClockHidesNothingThatAMachineCrashChanged) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  const std::string backing = volume.backing_path_of(inode);
  volume.settle();
  volume.pull_plug();
  change_bytes_at(backing, kIn2096);
  volume.run();
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
  EXPECT_EQ(0u, volume->counts().changed_on_purpose);
}

// It was ahead when the machine came back, or is set back since.
TEST(Recovery, AWrongWallClockLosesNothingThatIsStoredAfterAMachineCrash) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume.settle();
  volume.crash_machine();
  volume.start();
  volume.open(inode, O_RDONLY);  // It stays in memory.
  volume.close(volume.open(inode, O_RDWR));
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return volume.state_of(inode) == DataState::kSealed; }));
  // Through a mapping that is left.
  change_bytes_at(volume.backing_path_of(inode), kIn2001);
  EXPECT_EQ("BYTES", must(volume.read_path("f")));
  EXPECT_EQ(1u, volume->counts().changed_on_purpose);
}

TEST(Recovery, MachineCrashMayTakeBackingFilesThatWereNeverSynced) {
  TestVolume volume;
  const Created fsynced = volume.create(kRootInode, "fsynced");
  EXPECT_OK(volume->fsync(*fsynced.opened.file, false));
  const InodeNumber published = volume.store_file(kRootInode, "published", "x");
  const std::string backing = volume.backing_path_of(published);
  const std::string synced = volume.backing_path_of(fsynced.entry.inode);
  volume.pull_plug();
  ASSERT_EQ(0, ::unlink(backing.c_str()));
  ASSERT_EQ(0, ::unlink(synced.c_str()));
  volume.run();
  EXPECT_TRUE(volume.names_in(kRootInode).empty());
}

TEST(Recovery, OrphansOfTheLastRunAreRemoved) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  const std::string backing = volume.backing_path_of(inode);
  must(volume->set_xattr(inode, "user.x", "y", 0, {}));
  volume.open(inode, O_RDONLY);
  EXPECT_OK(volume->unlink(kRootInode, "f"));
  const Created nameless = must(volume->make_tmpfile(kRootInode, 0600, O_RDWR, kRoot));
  const std::string nameless_backing = volume.backing_path_of(nameless.entry.inode);
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  EXPECT_OK(volume->rmdir(kRootInode, "d"));
  volume.crash_daemon();
  volume.settle();
  EXPECT_FALSE(TestVolume::exists(backing));
  EXPECT_FALSE(TestVolume::exists(nameless_backing));
  for (const InodeNumber gone : {inode, nameless.entry.inode, dir})
    EXPECT_FALSE(must(volume.catalog().find_inode(gone)));
  EXPECT_TRUE(must(volume.catalog().list_xattrs(inode)).empty());
  EXPECT_TRUE(must(volume.catalog().list_orphan_inodes(0, 10)).empty());
  EXPECT_TRUE(must(volume.catalog().list_unsealed(0, 10)).empty());
}

TEST(Recovery, BackingFilesWithoutARecordAreRemovedAfterACrash) {
  TestVolume volume;
  volume.store_file(kRootInode, "f", "bytes");
  const ObjectId stray = must(volume.catalog().next_id());
  write_file(volume.backing_path(stray), "stray");
  volume.crash_daemon();
  volume.start();
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return !TestVolume::exists(volume.backing_path(stray)); }));
  EXPECT_EQ("bytes", must(volume.read_path("f")));
}

TEST(Recovery, AnUnlinkThatFailedIsTriedAgain) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  const ObjectId object = volume.record_of(inode).object;
  volume->forget(inode, 1);
  volume.faults().unremovable.insert(object);
  EXPECT_OK(volume->unlink(kRootInode, "f"));
  volume.start();
  volume.stop_cleanly();
  EXPECT_TRUE(TestVolume::exists(volume.backing_path(object)));
  volume.run();
  volume.settle();
  EXPECT_FALSE(TestVolume::exists(volume.backing_path(object)));
  EXPECT_TRUE(must(volume.catalog().list_orphan_objects(0, 10)).empty());
}

TEST(Recovery, AnOrphanOnNoDeviceIsForgotten) {
  TestVolume volume;
  volume.store_file(kRootInode, "f", "bytes");
  Edit edit;
  edit.put_orphan_object(must(volume.catalog().next_id()), 9);
  must(volume.catalog().commit(std::move(edit)));
  volume.crash_daemon();
  volume.settle();
  EXPECT_TRUE(must(volume.catalog().list_orphan_objects(0, 10)).empty());
  EXPECT_EQ("bytes", must(volume.read_path("f")));
}

TEST(Recovery, AttributesSetAfterPublicationSurvive) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  SetAttributes change;
  change.atime = 1'000'000'000;
  change.mtime = 2'000'000'000;
  change.mode = 0600;
  change.uid = 7;
  EXPECT_OK(volume->set_attributes(inode, change, nullptr, kRoot));
  volume.crash_daemon();
  EXPECT_EQ("bytes", must(volume.read_path("f")));
  const struct stat after = volume.stat_of(inode);
  EXPECT_EQ(2'000'000'000, to_nanos(after.st_mtim));
  EXPECT_EQ(static_cast<mode_t>(S_IFREG | 0600), after.st_mode);
  EXPECT_EQ(7u, after.st_uid);
}

TEST(Recovery, AMissingBackingFileIsAMissAndCounted) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  must(volume->link(inode, kRootInode, "g"));
  volume.store_file(kRootInode, "good", "good");
  volume.settle();
  ASSERT_EQ(0, ::unlink(volume.backing_path_of(inode).c_str()));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "g"));
  EXPECT_EQ(1u, volume->counts().lost);
  EXPECT_EQ("good", must(volume.read_path("good")));
  // The name can be stored again.
  volume.store_file(kRootInode, "f", "again");
  EXPECT_EQ("again", must(volume.read_path("f")));
}

TEST(Recovery, AMissingBackingFileMakesHandlesStale) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  ASSERT_EQ(0, ::unlink(volume.backing_path_of(inode).c_str()));
  EXPECT_ERROR(ESTALE, volume->open(inode, O_RDONLY, kRoot));
  EXPECT_ERROR(ESTALE, volume->attributes(volume.store_file(kRootInode, "x", "") + 1000));
}

TEST(Recovery, ASealedFileThatWasCutOrGrownIsQuarantined) {
  PROMISE(1);
  TestVolume volume;
  std::uint64_t damaged = 0;
  volume.start();
  for (const std::int64_t size : {0, 4, 6}) {
    const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
    ASSERT_TRUE(
        TestVolume::wait_for([&] { return volume.state_of(inode) == DataState::kSealed; }));
    const std::string backing = volume.backing_path_of(inode);
    ASSERT_EQ(0, ::truncate(backing.c_str(), size));
    EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
    EXPECT_EQ(++damaged, volume->counts().damaged);
    EXPECT_FALSE(TestVolume::exists(backing));
    EXPECT_TRUE(TestVolume::exists(volume.device_paths().front() + "/quarantine/" +
                                   std::filesystem::path(backing).filename().string()));
  }
}

// The kernel writes to it for who had it open when the last daemon ended.
TEST(Recovery, WhatIsWrittenOnThroughAnOldDescriptorIsNoDamage) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "log", "one\n");
  const std::string backing = volume.backing_path_of(inode);
  volume.crash_daemon();
  // Somebody else opens it for writing, and has done with it.
  volume.close(volume.open(inode, O_RDWR));
  volume.settle();
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  write_file(backing, "one\ntwo\n");
  EXPECT_EQ("one\ntwo\n", must(volume.read_path("log")));
  EXPECT_EQ(0u, volume->counts().damaged);
  EXPECT_EQ(1u, volume->counts().changed_on_purpose);
  // In any run after it.
  volume.settle();
  volume.kill();
  volume.run();
  write_file(backing, "one\ntwo\nthree\n");
  EXPECT_EQ("one\ntwo\nthree\n", must(volume.read_path("log")));
  // One that lost bytes is another matter.
  volume.settle();
  ASSERT_EQ(0, ::truncate(backing.c_str(), 4));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "log"));
  EXPECT_EQ(1u, volume->counts().damaged);
}

// The stop seals it, and the kernel goes on writing.
TEST(Recovery, WhatWasOpenForWritingAtAStopMayGrow) {
  TestVolume volume;
  const Created log = volume.create(kRootInode, "log");
  const InodeNumber inode = log.entry.inode;
  volume.write(*log.opened.file, "one\n");
  ASSERT_OK(volume->flush(*log.opened.file, kRoot));
  const std::string backing = volume.backing_path_of(inode);
  volume.settle();
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  write_file(backing, "one\ntwo\n");
  EXPECT_EQ("one\ntwo\n", must(volume.read_path("log")));
  EXPECT_EQ(0u, volume->counts().damaged);
}

TEST(Recovery, WhatGrewAndWasOpenInNoEndedDaemonIsDamaged) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  const std::string backing = volume.backing_path_of(inode);
  volume.settle();
  volume.kill();
  volume.run();
  write_file(backing, "bytes and more");
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
  EXPECT_EQ(1u, volume->counts().damaged);
}

TEST(Recovery, OneUnreadableFileKeepsNoOtherAway) {
  TestVolume volume;
  const InodeNumber bad = volume.store_file(kRootInode, "bad", "bytes");
  const InodeNumber kept = volume.store_file(kRootInode, "kept", "bytes");
  volume.sync(kept);
  volume.store_file(kRootInode, "good", "good");
  volume.settle();
  std::set<ObjectId> unreadable;
  for (const InodeNumber inode : {bad, kept}) {
    volume.write(volume.open(inode, O_RDWR), "B");
    unreadable.insert(volume.record_of(inode).object);
  }
  volume.pull_plug();
  volume.set_unreadable(unreadable);
  volume.run();
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "bad"));
  EXPECT_OK(volume->lookup(kRootInode, "kept"));
  EXPECT_EQ("good", must(volume.read_path("good")));
}

TEST(Recovery, ADeviceThatIsAddedIsNoCrashOfTheMachine) {
  TestVolume volume;
  volume.store_file(kRootInode, "f", "bytes");
  volume.kill();
  volume.add_device();
  volume.run();
  EXPECT_EQ("daemon", volume->recovery().kind);
  EXPECT_EQ("bytes", must(volume.read_path("f")));
}

TEST(Recovery, IsTheSameWithTheRealDatabase) {
  PROMISE(7);
  TestVolume volume({.rocksdb = true, .devices = 1, .volume = {}});
  volume.store_file(kRootInode, "sealed", "sealed");
  volume.settle();
  volume.store_file(kRootInode, "published", "published");
  volume.create(kRootInode, "unpublished");
  volume.crash_daemon();
  EXPECT_EQ("daemon", volume->recovery().kind);
  EXPECT_EQ((std::vector<std::string>{"sealed", "published"}), volume.names_in(kRootInode));
  volume.crash_machine();
  EXPECT_EQ("machine", volume->recovery().kind);
  EXPECT_EQ(std::vector<std::string>{"sealed"}, volume.names_in(kRootInode));
  EXPECT_EQ("sealed", must(volume.read_path("sealed")));
}

// A stop may not have the time to seal all; what it has synced is on the disk all the same.
TEST(Recovery, WhatACleanStopHasNotSealedOutlivesTheMachine) {
  TestVolume volume;
  volume.store_file(kRootInode, "f", "bytes");
  // Nothing was started that seals.
  volume.stop_cleanly();
  volume.boot_again();
  volume.run();
  EXPECT_EQ("clean", volume->recovery().kind);
  EXPECT_EQ(1u, volume->counts().unsealed);
  EXPECT_EQ("bytes", must(volume.read_path("f")));

  // Unless it could not sync.
  volume.faults().no_sync = true;
  volume.stop_cleanly();
  volume.boot_again();
  volume.run();
  EXPECT_EQ("machine", volume->recovery().kind);
  EXPECT_ERROR(ENOENT, volume.read_path("f"));
}

InodeNumber make_kept_directory(TestVolume& volume, std::string_view name) {
  const InodeNumber directory = volume.mkdir(kRootInode, name);
  must(volume->set_xattr(directory, "user.kvcachefs.policy", "keep", 0, TestVolume::kRoot));
  return directory;
}

// The close of what must not be lost waits for the disk.
TEST(Recovery, WhatIsToBeKeptIsThereAfterAMachineCrash) {
  TestVolume volume;
  const InodeNumber d = make_kept_directory(volume, "d");
  volume.store_file(d, "closed", "bytes");
  volume.store_file(d, "rewritten", "before");
  volume.rewrite(must(volume.resolve("d/rewritten")), "after");
  // Made elsewhere, and moved there.
  volume.store_file(kRootInode, "f.new", "moved");
  EXPECT_OK(volume->rename(kRootInode, "f.new", d, "moved", 0, TestVolume::kRoot));
  volume.store_file(kRootInode, "other", "bytes");
  // The old bytes are there as long as the new ones are not, and on the disk, too.
  volume.store_file(d, "half", "old bytes");
  const Opened again =
      must(volume->open(must(volume.resolve("d/half")), O_WRONLY | O_TRUNC, TestVolume::kRoot));
  volume.write(*again.file, "ne");
  const Created open = volume.create(d, "open");
  volume.write(*open.opened.file, "half");
  EXPECT_EQ(FlushCost::kWaitsForDisk, must(volume->flush_cost(*open.opened.file)));
  const Created quick = volume.create(kRootInode, "quick");
  EXPECT_EQ(FlushCost::kQuick, must(volume->flush_cost(*quick.opened.file)));
  volume.crash_machine();
  EXPECT_EQ("bytes", must(volume.read_path("d/closed")));
  EXPECT_EQ("after", must(volume.read_path("d/rewritten")));
  EXPECT_EQ("old bytes", must(volume.read_path("d/half")));
  EXPECT_EQ("moved", must(volume.read_path("d/moved")));
  EXPECT_ERROR(ENOENT, volume.read_path("other"));
  EXPECT_ERROR(ENOENT, volume.read_path("d/open"));
}

// Two names are exchanged, one comes to a directory whose files must not be lost.
TEST(Recovery, WhatIsExchangedOrLinkedIntoAKeptDirectoryIsThereAfterAMachineCrash) {
  TestVolume volume;
  const InodeNumber d = make_kept_directory(volume, "d");
  volume.store_file(d, "a", "was kept");
  volume.store_file(kRootInode, "b", "comes");
  EXPECT_OK(volume->rename(d, "a", kRootInode, "b", RENAME_EXCHANGE, TestVolume::kRoot));
  volume.store_file(kRootInode, "c", "linked");
  EXPECT_OK(volume->link(must(volume.resolve("c")), d, "c", TestVolume::kRoot));
  volume.crash_machine();
  EXPECT_EQ("comes", must(volume.read_path("d/a")));
  EXPECT_EQ("linked", must(volume.read_path("d/c")));
}

// What comes to be kept while somebody writes it: by its own word, or by a name it gets.
TEST(Recovery, TheCloseOfWhatIsToldToBeKeptWhileItIsOpenWaitsToo) {
  TestVolume volume;
  const InodeNumber d = make_kept_directory(volume, "d");
  const Created moved = volume.create(kRootInode, "moved");
  EXPECT_EQ(FlushCost::kQuick, must(volume->flush_cost(*moved.opened.file)));
  EXPECT_OK(volume->rename(kRootInode, "moved", d, "moved", 0, TestVolume::kRoot));
  volume.write(*moved.opened.file, "its bytes");
  EXPECT_EQ(FlushCost::kWaitsForDisk, must(volume->flush_cost(*moved.opened.file)));
  volume.close(*moved.opened.file);
  const Created told = volume.create(kRootInode, "told");
  must(volume->set_xattr(told.entry.inode, "user.kvcachefs.policy", "keep", 0,
                         TestVolume::kRoot));
  volume.write(*told.opened.file, "its bytes");
  volume.close(*told.opened.file);
  volume.crash_machine();
  EXPECT_EQ("its bytes", must(volume.read_path("d/moved")));
  EXPECT_EQ("its bytes", must(volume.read_path("told")));
}

// A duplicate of a descriptor is closed before the first byte comes, as by a shell.
TEST(Recovery, TheCloseOfAnEmptyRewriteTakesNothingKept) {
  TestVolume volume;
  const InodeNumber d = make_kept_directory(volume, "d");
  volume.store_file(d, "f", "old bytes");
  const Opened again =
      must(volume->open(must(volume.resolve("d/f")), O_WRONLY | O_TRUNC, TestVolume::kRoot));
  EXPECT_OK(volume->flush(*again.file, TestVolume::kRoot));
  volume.write(*again.file, "ne");
  volume.crash_machine();
  EXPECT_EQ("old bytes", must(volume.read_path("d/f")));
}

// The power cut of tests/crash may find its old bytes, too: a record that nobody has synced outlives this crash.
TEST(Recovery, AnEmptiedFileThatIsKeptIsThereAfterAMachineCrash) {
  TestVolume volume;
  const InodeNumber d = make_kept_directory(volume, "d");
  volume.store_file(d, "f", "old bytes");
  volume.rewrite(must(volume.resolve("d/f")), "");
  volume.crash_machine();
  EXPECT_EQ("", must(volume.read_path("d/f")));
}

// What is not to be kept any more is exact or absent, as all others.
TEST(Recovery, WhatWasKeptOnceAndIsNotSealedGoesWithAMachineCrash) {
  TestVolume volume;
  const InodeNumber d = make_kept_directory(volume, "d");
  volume.store_file(d, "f", "bytes");
  must(volume->set_xattr(d, "user.kvcachefs.policy", "cache", 0, TestVolume::kRoot));
  volume.crash_machine();
  EXPECT_ERROR(ENOENT, volume.read_path("d/f"));
}

TEST(Recovery, RefusesToRunWithoutOneOfItsDevices) {
  TestVolume volume;
  volume.store_file(kRootInode, "f", "bytes");
  volume.stop_cleanly();
  ASSERT_EQ(0, ::rename(volume.device_paths().front().c_str(),
                        (volume.directory() + "/elsewhere").c_str()));
  ASSERT_EQ(0, ::mkdir(volume.device_paths().front().c_str(), 0700));
  EXPECT_ERROR(ENODEV, volume.try_run());
}

// Its record and its names are gone, and the unlink did not reach the disk.
TEST(Recovery, MachineCrashLeavesNoOldFileWithoutARecord) {
  TestVolume volume;
  const InodeNumber old = volume.store_file(kRootInode, "old", "bytes");
  const std::string backing = volume.backing_path_of(old);
  EXPECT_OK(volume->unlink(kRootInode, "old"));
  const InodeNumber kept = volume.store_file(kRootInode, "kept", "bytes");
  volume.settle();
  EXPECT_FALSE(TestVolume::exists(backing));
  // Its id is none of the last run's, which a start looks at one by one.
  for (int i = 0; i < 2; ++i) volume.crash_daemon();
  volume.pull_plug();
  write_file(backing, "bytes");
  volume.run();
  volume.start();
  EXPECT_TRUE(TestVolume::wait_for([&] { return !TestVolume::exists(backing); }));
  volume.stop_cleanly();
  volume.run();
  EXPECT_TRUE(TestVolume::exists(volume.backing_path_of(kept)));
  EXPECT_EQ("bytes", must(volume.read_path("kept")));
}

// To before this run began.
void date_back(const std::string& path) {
  const timespec times[2] = {{.tv_sec = 7, .tv_nsec = 0}, {.tv_sec = 7, .tv_nsec = 0}};
  ASSERT_EQ(0, ::utimensat(AT_FDCWD, path.c_str(), times, 0));
}

// The record that a sealed file is being changed was lost with the power, and its new bytes were not.
TEST(Recovery, MachineCrashJudgesWhatChangedUnderItsSeal) {
  TestVolume volume;
  const InodeNumber cache = volume.store_file(kRootInode, "cache", "bytes");
  const InodeNumber kept = volume.store_file(kRootInode, "kept", "bytes");
  EXPECT_OK(volume->set_xattr(kept, "user.kvcachefs.policy", "keep", 0, kRoot));
  const InodeNumber synced = volume.store_file(kRootInode, "synced", "bytes");
  volume.sync(synced);
  const InodeNumber grown = volume.store_file(kRootInode, "grown", "bytes");
  volume.sync(grown);
  volume.store_file(kRootInode, "untouched", "bytes");
  volume.settle();
  std::vector<std::string> paths;
  for (const InodeNumber inode : {cache, kept, synced})
    paths.push_back(volume.backing_path_of(inode));
  const std::string longer = volume.backing_path_of(grown);
  volume.pull_plug();
  const auto leave = [](const std::string& path, std::string_view bytes) {
    write_file(path, bytes);
    date_back(path);
  };
  for (const std::string& path : paths) leave(path, "BYTes");
  leave(longer, "bytes and more");
  volume.run();
  // Nobody looks, and the next run knows of it still.
  volume.crash_daemon();
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "cache"));
  EXPECT_EQ("BYTes", must(volume.read_path("kept")));
  EXPECT_EQ("BYTes", must(volume.read_path("synced")));
  EXPECT_EQ("bytes and more", must(volume.read_path("grown")));
  EXPECT_EQ("bytes", must(volume.read_path("untouched")));
  EXPECT_EQ(0u, volume->counts().damaged);
}

TEST(Recovery, MachineCrashLeavesNothingToJudgeOnceAllWereLookedAt) {
  TestVolume volume;
  const InodeNumber changed = volume.store_file(kRootInode, "changed", "bytes");
  const InodeNumber touched = volume.store_file(kRootInode, "touched", "bytes");
  const InodeNumber later = volume.store_file(kRootInode, "later", "bytes");
  volume.settle();
  const std::string path = volume.backing_path_of(changed);
  const std::string other = volume.backing_path_of(touched);
  volume.pull_plug();
  write_file(path, "BYTes");
  date_back(path);
  date_back(other);
  volume.run();
  ASSERT_TRUE(must(volume.catalog().machine_cut()));
  volume.start();
  EXPECT_TRUE(TestVolume::wait_for([&] { return !must(volume.catalog().machine_cut()); }));
  // By the walk alone.
  EXPECT_FALSE(must(volume.catalog().find_dentry(kRootInode, "changed")));
  volume.stop_cleanly();
  volume.run();
  EXPECT_EQ("bytes", must(volume.read_path("touched")));
  // From here on it is a user's doing.
  write_file(volume.backing_path_of(later), "BYTes");
  EXPECT_EQ("BYTes", must(volume.read_path("later")));
}

}  // namespace
}  // namespace kvcachefs
