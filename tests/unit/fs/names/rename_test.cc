// Rename: moving, replacing, exchanging; and publication by it.
#include <stdio.h>

#include "tests/fakes/promise.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

TEST(Rename, MovesAFileBetweenDirectories) {
  TestVolume volume;
  const InodeNumber a = volume.mkdir(kRootInode, "a");
  const InodeNumber b = volume.mkdir(kRootInode, "b");
  const InodeNumber inode = volume.store_file(a, "f", "bytes");
  EXPECT_OK(volume->rename(a, "f", b, "g", 0));
  EXPECT_ERROR(ENOENT, volume->lookup(a, "f"));
  EXPECT_EQ(inode, must(volume.resolve("b/g")));
  EXPECT_EQ("bytes", must(volume.read_path("b/g")));
  EXPECT_ERROR(ENOENT, volume->rename(a, "f", b, "h", 0));
}

TEST(Rename, ReplacesAFileWhoseReadersKeepTheirBytes) {
  PROMISE(5);
  TestVolume volume;
  const InodeNumber old = volume.store_file(kRootInode, "f", "old");
  OpenFile& reader = volume.open(old, O_RDONLY);
  volume.store_file(kRootInode, "tmp", "new!");
  EXPECT_OK(volume->rename(kRootInode, "tmp", kRootInode, "f", 0));
  EXPECT_EQ("new!", must(volume.read_path("f")));
  EXPECT_EQ(std::vector<std::string>{"f"}, volume.names_in(kRootInode));
  EXPECT_EQ(0u, volume.stat_of(old).st_nlink);
  std::string bytes(3, ' ');
  EXPECT_EQ(3u, must(volume->read(reader, std::as_writable_bytes(std::span(bytes)), 0)));
  EXPECT_EQ("old", bytes);
  volume->release(reader);
}

TEST(Rename, PublishesAnOpenFile) {
  PROMISE(5);
  TestVolume volume;
  const Created made = volume.create(kRootInode, "tmp");
  volume.write(*made.opened.file, "bytes");
  EXPECT_OK(volume->rename(kRootInode, "tmp", kRootInode, "final", 0));
  const InodeRecord record = volume.record_of(made.entry.inode);
  EXPECT_EQ(DataState::kPublished, record.state);
  EXPECT_EQ(5u, record.stamp.size);
  volume->release(*made.opened.file);
}

TEST(Rename, NoReplaceRefusesAStandingName) {
  TestVolume volume;
  volume.store_file(kRootInode, "a", "a");
  volume.store_file(kRootInode, "b", "b");
  EXPECT_ERROR(EEXIST, volume->rename(kRootInode, "a", kRootInode, "b", RENAME_NOREPLACE));
  EXPECT_EQ("b", must(volume.read_path("b")));
  EXPECT_OK(volume->rename(kRootInode, "a", kRootInode, "c", RENAME_NOREPLACE));
  EXPECT_EQ("a", must(volume.read_path("c")));
}

TEST(Rename, ExchangeSwapsTwoNames) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  const InodeNumber file = volume.store_file(kRootInode, "f", "f");
  const InodeNumber sub = volume.mkdir(dir, "s");
  EXPECT_EQ(3u, volume.stat_of(kRootInode).st_nlink);
  EXPECT_EQ(3u, volume.stat_of(dir).st_nlink);
  EXPECT_OK(volume->rename(kRootInode, "f", dir, "s", RENAME_EXCHANGE));
  EXPECT_EQ(sub, must(volume.resolve("f")));
  EXPECT_EQ(file, must(volume.resolve("d/s")));
  EXPECT_EQ(4u, volume.stat_of(kRootInode).st_nlink);
  EXPECT_EQ(2u, volume.stat_of(dir).st_nlink);
  EXPECT_EQ(kRootInode, must(volume->lookup(sub, "..")).inode);
  EXPECT_ERROR(ENOENT, volume->rename(kRootInode, "f", dir, "none", RENAME_EXCHANGE));
}

TEST(Rename, ExchangeOfANameWithItselfChangesNothing) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "f", "f");
  EXPECT_OK(volume->rename(kRootInode, "f", kRootInode, "f", RENAME_EXCHANGE));
  EXPECT_EQ(file, must(volume.resolve("f")));
  EXPECT_EQ(std::vector<std::string>{"f"}, volume.names_in(kRootInode));
  EXPECT_EQ(1u, volume.stat_of(file).st_nlink);
}

TEST(Rename, OntoALinkOfTheSameFileDoesNothing) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "f", "f");
  must(volume->link(file, kRootInode, "g"));
  EXPECT_OK(volume->rename(kRootInode, "f", kRootInode, "g", 0));
  EXPECT_EQ(file, must(volume.resolve("f")));
  EXPECT_EQ(file, must(volume.resolve("g")));
  EXPECT_ERROR(EEXIST, volume->rename(kRootInode, "f", kRootInode, "g", RENAME_NOREPLACE));
}

TEST(Rename, OtherFlagsAreRefused) {
  TestVolume volume;
  volume.store_file(kRootInode, "f", "f");
  EXPECT_ERROR(EINVAL, volume->rename(kRootInode, "f", kRootInode, "g", 1U << 3));
  EXPECT_ERROR(EINVAL, volume->rename(kRootInode, "f", kRootInode, "g",
                                      RENAME_WHITEOUT | RENAME_EXCHANGE));
}

TEST(Rename, AWhiteoutStaysUnderTheOldName) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "f", "bytes");
  must(volume->rename(kRootInode, "f", kRootInode, "g", RENAME_WHITEOUT));
  EXPECT_EQ(file, must(volume.resolve("g")));
  const InodeNumber hider = must(volume.resolve("f"));
  const struct stat status = volume.stat_of(hider);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(0U, status.st_rdev);
  EXPECT_EQ(1U, status.st_nlink);
  // A name that hides one can be taken by another file, and removed.
  must(volume->rename(kRootInode, "g", kRootInode, "f", RENAME_WHITEOUT));
  EXPECT_EQ(file, must(volume.resolve("f")));
  must(volume->unlink(kRootInode, "g"));
  EXPECT_ERROR(ENOENT, volume.resolve("g"));
}

TEST(Rename, TypesMustFit) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  volume.mkdir(kRootInode, "e");
  volume.store_file(kRootInode, "f", "f");
  EXPECT_ERROR(EISDIR, volume->rename(kRootInode, "f", kRootInode, "d", 0));
  EXPECT_ERROR(ENOTDIR, volume->rename(kRootInode, "d", kRootInode, "f", 0));
  volume.store_file(dir, "x", "x");
  EXPECT_ERROR(ENOTEMPTY, volume->rename(kRootInode, "e", kRootInode, "d", 0));
  EXPECT_EQ("x", must(volume.read_path("d/x")));
}

TEST(Rename, DirectoriesCarryTheirLinkCounts) {
  TestVolume volume;
  const InodeNumber a = volume.mkdir(kRootInode, "a");
  const InodeNumber b = volume.mkdir(kRootInode, "b");
  const InodeNumber moved = volume.mkdir(a, "d");
  EXPECT_OK(volume->rename(a, "d", b, "d", 0));
  EXPECT_EQ(2u, volume.stat_of(a).st_nlink);
  EXPECT_EQ(3u, volume.stat_of(b).st_nlink);
  // Over an empty one.
  const InodeNumber replaced = volume.mkdir(a, "e");
  EXPECT_OK(volume->rename(b, "d", a, "e", 0));
  EXPECT_EQ(3u, volume.stat_of(a).st_nlink);
  EXPECT_EQ(2u, volume.stat_of(b).st_nlink);
  EXPECT_EQ(2u, volume.stat_of(moved).st_nlink);
  EXPECT_EQ(0u, volume.stat_of(replaced).st_nlink);
  // Within one directory.
  EXPECT_OK(volume->rename(a, "e", a, "f", 0));
  EXPECT_EQ(3u, volume.stat_of(a).st_nlink);
  volume.settle();
  EXPECT_EQ(moved, must(volume.resolve("a/f")));
  EXPECT_EQ(3u, volume.stat_of(a).st_nlink);
}

TEST(Rename, IsOneCommit) {
  PROMISE(5);
  TestVolume volume;
  volume.store_file(kRootInode, "f", "old");
  volume.store_file(kRootInode, "tmp", "new");
  EXPECT_OK(volume->rename(kRootInode, "tmp", kRootInode, "f", 0));
  volume.crash_daemon();
  EXPECT_EQ("new", must(volume.read_path("f")));
  EXPECT_ERROR(ENOENT, volume.resolve("tmp"));
}

TEST(Rename, UnderKeepWaitsForTheDisk) {
  TestVolume volume({.rocksdb = false,
                     .devices = 1,
                     .volume = {.keep_by_default = true,
                                .read_only = false,
                                .verify = VerifyMode::kOpen,
                                .scrub_bytes_per_second = 0}});
  EXPECT_TRUE(volume->waits_for_disk(kRootInode, "g"));
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  const Created made = volume.create(kRootInode, "tmp");
  volume.write(*made.opened.file, "bytes");
  EXPECT_OK(volume->rename(kRootInode, "tmp", dir, "final", 0));
  EXPECT_OK(volume->rename(kRootInode, "d", kRootInode, "e", 0));
  volume->release(*made.opened.file);
  volume.crash_machine();
  EXPECT_EQ("bytes", must(volume.read_path("e/final")));
}

}  // namespace
}  // namespace kvcachefs
