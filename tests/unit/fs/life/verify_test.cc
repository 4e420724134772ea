// Bytes that are not the sealed ones are found, and bytes that a user changed are not taken for such.
//
// The devices are in memory, where every page is in the page cache: O_DIRECT makes an open verify.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "backend/base/unique_fd.h"
#include "tests/fakes/promise.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

constexpr int kRead = O_RDONLY | O_DIRECT;
const std::string kBytes(3 * kChecksumChunk + 1000, 'x');

struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(0, ::stat(path.c_str(), &status));
  return status;
}

void overwrite(const std::string& path, std::string_view bytes, off_t offset) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY));
  ASSERT_EQ(static_cast<ssize_t>(bytes.size()),
            ::pwrite(fd.get(), bytes.data(), bytes.size(), offset));
}

// Below the filesystem nothing but the bytes changes. Here a ctime cannot be set back.
void flip_below(const std::string& path, off_t offset) {
  const struct stat before = status_of(path);
  overwrite(path, "?", offset);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(0, ::utimensat(AT_FDCWD, path.c_str(), times, 0));
}

class Verify : public ::testing::Test {
 protected:
  // A sealed file that nobody has looked at since the start.
  InodeNumber sealed_file(TestVolume& volume, std::string_view name = "f") {
    const InodeNumber inode = volume.store_file(kRootInode, name, kBytes);
    volume.settle();
    return inode;
  }
  // The records take the file's ctime: a disk does not move it.
  void take_ctime(TestVolume& volume, InodeNumber inode) {
    InodeRecord record = volume.record_of(inode);
    ObjectRecord object = *must(volume.catalog().find_object(record.object));
    record.stamp.ctime = object.sealed.ctime =
        to_nanos(status_of(volume.backing_path_of(inode)).st_ctim);
    Edit edit;
    edit.put_inode(inode, record);
    edit.put_object(record.object, object);
    must(volume.catalog().commit(std::move(edit)));
  }
  InodeNumber damaged_file(TestVolume& volume, off_t offset = 2 * kChecksumChunk + 5) {
    const InodeNumber inode = sealed_file(volume);
    flip_below(volume.backing_path_of(inode), offset);
    take_ctime(volume, inode);
    return inode;
  }
  static Result<Opened> open(TestVolume& volume, InodeNumber inode, int flags = kRead) {
    return volume->open(inode, flags, TestVolume::kRoot);
  }
  static void open_and_close(TestVolume& volume, InodeNumber inode, int flags = kRead) {
    volume.close(volume.open(inode, flags));
  }
};

TEST_F(Verify, ADamagedFileIsAMissSetAsideAndCounted) {
  PROMISE(1);
  for (const std::size_t offset :
       {std::size_t{0}, std::size_t{kChecksumChunk}, kBytes.size() - 1}) {
    TestVolume volume;
    const InodeNumber inode = damaged_file(volume, static_cast<off_t>(offset));
    const std::string backing = volume.backing_path_of(inode);
    EXPECT_EQ(OpenCost::kWaitsForDisk, must(volume->open_cost(inode, kRead)));
    EXPECT_ERROR(ESTALE, open(volume, inode));
    EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
    EXPECT_TRUE(volume.notifications().has_entry(kRootInode, "f"));
    EXPECT_FALSE(TestVolume::exists(backing));
    EXPECT_TRUE(TestVolume::exists(volume.device_paths().front() + "/quarantine/" +
                                   std::filesystem::path(backing).filename().string()));
    const VolumeCounts counts = volume->counts();
    EXPECT_EQ(1u, counts.damaged);
    EXPECT_EQ(0u, counts.unreadable);
    EXPECT_EQ(1u, counts.verified_opens);
    EXPECT_EQ(kBytes.size(), counts.verified_bytes);
    // The name can be stored again.
    volume.store_file(kRootInode, "f", "again");
    EXPECT_EQ("again", must(volume.read_path("f")));
  }
}

TEST_F(Verify, AWholeFileIsVerifiedOnceAndServed) {
  TestVolume volume;
  const InodeNumber inode = sealed_file(volume);
  for (int i = 0; i < 3; ++i) open_and_close(volume, inode);
  EXPECT_EQ(1u, volume->counts().verified_opens);
  EXPECT_EQ(0u, volume->counts().damaged);
  EXPECT_EQ(kBytes, must(volume.read(inode)));
}

TEST_F(Verify, WhatIsInThePageCacheIsNotReadAgain) {
  TestVolume volume;
  const InodeNumber inode = sealed_file(volume);
  EXPECT_EQ(OpenCost::kQuick, must(volume->open_cost(inode, O_RDONLY)));
  open_and_close(volume, inode, O_RDONLY);
  EXPECT_EQ(0u, volume->counts().verified_opens);
}

TEST_F(Verify, OnlyAsAskedFor) {
  for (const VerifyMode mode : {VerifyMode::kCopy, VerifyMode::kOff}) {
    TestVolume volume({.rocksdb = false,
                       .devices = 1,
                       .volume = {.keep_by_default = false,
                                  .read_only = false,
                                  .verify = mode,
                                  .scrub_bytes_per_second = 0}});
    const InodeNumber inode = damaged_file(volume);
    EXPECT_EQ(OpenCost::kQuick, must(volume->open_cost(inode, kRead)));
    open_and_close(volume, inode);
    EXPECT_EQ(0u, volume->counts().damaged);
  }
}

TEST_F(Verify, AWriterIsNotGivenDamagedBytesToSealAnew) {
  TestVolume volume;
  const InodeNumber inode = damaged_file(volume);
  EXPECT_ERROR(ESTALE, open(volume, inode, O_RDWR | O_DIRECT));
  EXPECT_EQ(1u, volume->counts().damaged);
}

TEST_F(Verify, WhoThrowsTheBytesAwayNeedNotHaveThemVerified) {
  TestVolume volume;
  const InodeNumber inode = damaged_file(volume);
  EXPECT_EQ(OpenCost::kChanges, must(volume->open_cost(inode, O_WRONLY | O_TRUNC | O_DIRECT)));
  volume.rewrite(inode, "new");
  EXPECT_EQ("new", must(volume.read(inode)));
}

TEST_F(Verify, WhoHasADamagedFileOpenKeepsItAndNobodyElseGetsIt) {
  TestVolume volume;
  const InodeNumber inode = damaged_file(volume);
  OpenFile& reader = volume.open(inode, O_RDONLY);
  EXPECT_ERROR(ESTALE, open(volume, inode));
  for (const int flags : {O_RDONLY, kRead, O_RDWR, O_WRONLY | O_TRUNC})
    EXPECT_ERROR(ESTALE, open(volume, inode, flags));
  char byte = 0;
  EXPECT_EQ(1u, must(volume->read(reader, std::as_writable_bytes(std::span(&byte, 1)), 0)));
  volume->release(reader);
  EXPECT_EQ(1u, volume->counts().damaged);
}

TEST_F(Verify, ManyOpensOfADamagedFileFindItOnce) {
  TestVolume volume;
  const InodeNumber inode = damaged_file(volume);
  std::vector<std::thread> threads;
  std::atomic<int> stale{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Result<Opened> opened = open(volume, inode);
      if (!opened.ok() && opened.error().code == ESTALE) ++stale;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(8, stale);
  EXPECT_EQ(1u, volume->counts().damaged);
}

TEST_F(Verify, AFileChangedThroughTheFilesystemIsServedAndSealedAnew) {
  TestVolume volume;
  const InodeNumber inode = sealed_file(volume);
  overwrite(volume.backing_path_of(inode), "Y", 0);
  open_and_close(volume, inode);
  EXPECT_EQ(DataState::kMutable, volume.state_of(inode));
  EXPECT_EQ(1u, volume->counts().changed_on_purpose);
  volume.settle();
  EXPECT_EQ(DataState::kSealed, volume.state_of(inode));
  open_and_close(volume, inode);
  EXPECT_EQ(1u, volume->counts().verified_opens);
  EXPECT_EQ(0u, volume->counts().damaged);
  EXPECT_EQ('Y', must(volume.read(inode)).front());
}

TEST_F(Verify, OtherTimesDoNotHideWhatAMappingStored) {
  TestVolume volume;
  const InodeNumber inode = sealed_file(volume);
  overwrite(volume.backing_path_of(inode), "Y", 0);
  SetAttributes change;
  change.mtime = volume.record_of(inode).stamp.mtime;
  EXPECT_OK(volume->set_attributes(inode, change, nullptr, TestVolume::kRoot));
  volume.settle();
  open_and_close(volume, inode);
  EXPECT_EQ(1u, volume->counts().verified_opens);
  EXPECT_EQ(0u, volume->counts().damaged);
}

TEST_F(Verify, ACtimeAloneIsJudgedByTheBytes) {
  TestVolume volume;
  const InodeNumber whole = sealed_file(volume, "whole");
  const InodeNumber damaged = sealed_file(volume, "damaged");
  ASSERT_EQ(0, ::chmod(volume.backing_path_of(whole).c_str(), 0600));
  flip_below(volume.backing_path_of(damaged), 7);
  for (int i = 0; i < 2; ++i) open_and_close(volume, whole, O_RDONLY);
  EXPECT_EQ(1u, volume->counts().verified_opens) << "its seal has the new ctime";
  EXPECT_EQ(DataState::kSealed, volume.state_of(whole));
  EXPECT_ERROR(ESTALE, open(volume, damaged, O_RDONLY));
  EXPECT_EQ(1u, volume->counts().damaged);
  EXPECT_EQ(0u, volume->counts().changed_on_purpose);
}

TEST_F(Verify, TheScrubFindsWhatNobodyOpens) {
  PROMISE(1);
  TestVolume volume({.rocksdb = false,
                     .devices = 1,
                     .volume = {.keep_by_default = false,
                                .read_only = false,
                                .verify = VerifyMode::kCopy,
                                .scrub_bytes_per_second = 1 << 30}});
  volume.store_file(kRootInode, "whole", kBytes);
  volume.store_file(kRootInode, "empty", "");
  const InodeNumber changed = volume.store_file(kRootInode, "changed", kBytes);
  damaged_file(volume);
  overwrite(volume.backing_path_of(changed), "Y", 0);
  volume.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume->counts().scrub_pass_end_s != 0; }));
  EXPECT_EQ(1u, volume->counts().damaged);
  EXPECT_GE(volume->counts().scrubbed_bytes, 2 * kBytes.size());
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
  EXPECT_EQ(kBytes, must(volume.read_path("whole")));
  EXPECT_EQ('Y', must(volume.read_path("changed")).front());
}

TEST_F(Verify, TheScrubEndsWithTheVolumeHoweverSlowItIs) {
  TestVolume volume({.rocksdb = false,
                     .devices = 1,
                     .volume = {.keep_by_default = false,
                                .read_only = false,
                                .verify = VerifyMode::kOpen,
                                .scrub_bytes_per_second = 1}});
  for (const char* name : {"a", "b"}) volume.store_file(kRootInode, name, kBytes);
  volume.settle();
  volume.start();
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().scrubbed_bytes > 0; }));
  volume.stop_cleanly();
}

}  // namespace
}  // namespace kvcachefs
