// Finding, making and removing names.
#include <dirent.h>

#include <map>

#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

TEST(Names, NewVolumeHasAnEmptyRootDirectory) {
  TestVolume volume;
  EXPECT_EQ("new", volume->recovery().kind);
  const struct stat root = volume.stat_of(kRootInode);
  EXPECT_EQ(static_cast<mode_t>(S_IFDIR | 0755), root.st_mode);
  EXPECT_EQ(2u, root.st_nlink);
  EXPECT_TRUE(volume.names_in(kRootInode).empty());
}

TEST(Names, LookupFindsWhatWasMade) {
  TestVolume volume;
  const Entry made =
      must(volume->make_node(kRootInode, "d", S_IFDIR | 0750, 0, {.uid = 7, .gid = 8}));
  const Entry found = must(volume->lookup(kRootInode, "d"));
  EXPECT_EQ(made.inode, found.inode);
  EXPECT_EQ(static_cast<mode_t>(S_IFDIR | 0750), found.attributes.st_mode);
  EXPECT_EQ(7u, found.attributes.st_uid);
  EXPECT_EQ(8u, found.attributes.st_gid);
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "other"));
  EXPECT_EQ(1u, volume->counts().lookups.misses);
  EXPECT_EQ(0u, volume->counts().lookups.hits) << "a directory is no file that was asked for";
  volume.store_file(kRootInode, "f", "x");
  must(volume->lookup(kRootInode, "f"));
  EXPECT_EQ(1u, volume->counts().lookups.hits);
}

TEST(Names, ANameIsMadeOnce) {
  TestVolume volume;
  volume.store_file(kRootInode, "f", "x");
  EXPECT_ERROR(EEXIST, volume->create(kRootInode, "f", 0644, O_RDWR | O_EXCL, kRoot));
  // The kernel believed that there was none: it looks once more, and opens it.
  EXPECT_ERROR(ESTALE, volume->create(kRootInode, "f", 0644, O_RDWR, kRoot));
  EXPECT_ERROR(EEXIST, volume->make_node(kRootInode, "f", S_IFDIR | 0755, 0, kRoot));
  EXPECT_ERROR(EEXIST, volume->make_symlink(kRootInode, "f", "t", kRoot));
  EXPECT_EQ("x", must(volume.read_path("f")));
}

TEST(Names, ARefusedCreateLeavesNoBackingFile) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  EXPECT_ERROR(EEXIST, volume->create(kRootInode, "f", 0644, O_RDWR | O_EXCL, kRoot));
  int files = 0;
  must((*volume->devices().front())
           .each([&](std::uint64_t) { return ++files > 0; }, [](const std::string&) {}));
  EXPECT_EQ(1, files);
  EXPECT_TRUE(TestVolume::exists(volume.backing_path_of(inode)));
}

TEST(Names, FullDevicesRefuseNewFilesHonestly) {
  TestVolume volume;
  volume.faults().no_space = true;
  EXPECT_ERROR(ENOSPC, volume->create(kRootInode, "f", 0644, O_RDWR, kRoot));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
}

TEST(Names, AllTypesAreMadeAndListed) {
  TestVolume volume;
  must(volume->make_node(kRootInode, "fifo", S_IFIFO | 0600, 0, kRoot));
  must(volume->make_node(kRootInode, "socket", S_IFSOCK | 0600, 0, kRoot));
  must(volume->make_node(kRootInode, "char", S_IFCHR | 0600, 0x0103, kRoot));
  must(volume->make_node(kRootInode, "block", S_IFBLK | 0600, 0x0800, kRoot));
  must(volume->make_node(kRootInode, "file", S_IFREG | 0600, 0, kRoot));
  must(volume->make_node(kRootInode, "dir", S_IFDIR | 0700, 0, kRoot));
  must(volume->make_symlink(kRootInode, "link", "to/there", kRoot));
  std::map<std::string, unsigned char> types;
  must(volume->list(kRootInode, 2, false, [&](const ListedEntry& listed) {
    types[listed.entry.name] = listed.entry.type;
    return true;
  }));
  const std::map<std::string, unsigned char> expected{
      {"fifo", DT_FIFO}, {"socket", DT_SOCK}, {"char", DT_CHR}, {"block", DT_BLK},
      {"file", DT_REG},  {"dir", DT_DIR},     {"link", DT_LNK}};
  EXPECT_EQ(expected, types);
  EXPECT_EQ(0x0103u, volume.stat_of(must(volume.resolve("char"))).st_rdev);
  const InodeNumber link = must(volume.resolve("link"));
  EXPECT_EQ("to/there", must(volume->read_link(link)));
  EXPECT_EQ(8, volume.stat_of(link).st_size);
  EXPECT_ERROR(EINVAL, volume->read_link(kRootInode));
  EXPECT_EQ(DataState::kPublished, volume.state_of(must(volume.resolve("file"))));
}

TEST(Names, SymlinkTargetsAreBounded) {
  TestVolume volume;
  EXPECT_ERROR(ENOENT, volume->make_symlink(kRootInode, "l", "", kRoot));
  EXPECT_ERROR(ENAMETOOLONG,
               volume->make_symlink(kRootInode, "l", std::string(4096, 'x'), kRoot));
  const std::string longest(4095, 'x');
  const InodeNumber link = must(volume->make_symlink(kRootInode, "l", longest, kRoot)).inode;
  EXPECT_EQ(longest, must(volume->read_link(link)));
}

TEST(Names, OddBytesAreKeptExactly) {
  TestVolume volume;
  const std::vector<std::string> names{"new\nline", "\xff\xfe", "%2f",
                                       " ",         "\x01\x7f", std::string(255, '\xc3'),
                                       "...",       "-rf",      "*"};
  for (const std::string& name : names) volume.store_file(kRootInode, name, name);
  volume.settle();
  for (const std::string& name : names) {
    const Entry entry = must(volume->lookup(kRootInode, name));
    EXPECT_EQ(name, must(volume.read(entry.inode)));
  }
  EXPECT_EQ(names, volume.names_in(kRootInode));
}

TEST(Names, WhatIsNoNameIsRefused) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "f", "x");
  const std::string too_long(256, 'x');
  EXPECT_ERROR(ENAMETOOLONG, volume->create(kRootInode, too_long, 0644, O_RDWR, kRoot));
  EXPECT_ERROR(ENAMETOOLONG, volume->lookup(kRootInode, too_long));
  EXPECT_ERROR(ENAMETOOLONG, volume->link(file, kRootInode, too_long));
  EXPECT_ERROR(ENAMETOOLONG, volume->rename(kRootInode, "f", kRootInode, too_long, 0));
  for (const std::string& name :
       {std::string("."), std::string(".."), std::string("a/b"), std::string("a\0b", 3)}) {
    EXPECT_ERROR(EINVAL, volume->make_node(kRootInode, name, S_IFDIR | 0755, 0, kRoot)) << name;
    EXPECT_ERROR(EINVAL, volume->link(file, kRootInode, name)) << name;
    EXPECT_ERROR(EINVAL, volume->rename(kRootInode, "f", kRootInode, name, 0)) << name;
  }
  EXPECT_EQ(std::vector<std::string>{"f"}, volume.names_in(kRootInode));
}

TEST(Names, DotAndDotDotAreServedForEveryInode) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(volume.mkdir(kRootInode, "a"), "b");
  volume.settle();  // as an NFS handle after a remount: nothing is in memory
  EXPECT_EQ(dir, must(volume->lookup(dir, ".")).inode);
  const InodeNumber above = must(volume->lookup(dir, "..")).inode;
  EXPECT_EQ(must(volume.resolve("a")), above);
  EXPECT_EQ(kRootInode, must(volume->lookup(above, "..")).inode);
  EXPECT_EQ(kRootInode, must(volume->lookup(kRootInode, "..")).inode);
  EXPECT_ERROR(ESTALE, volume->lookup(999'999, "."));
}

TEST(Names, DotDotFollowsARename) {
  TestVolume volume;
  const InodeNumber a = volume.mkdir(kRootInode, "a");
  const InodeNumber b = volume.mkdir(kRootInode, "b");
  const InodeNumber dir = volume.mkdir(a, "d");
  EXPECT_OK(volume->rename(a, "d", b, "d", 0));
  EXPECT_EQ(b, must(volume->lookup(dir, "..")).inode);
}

TEST(Names, AnInodeIsServedByNumberWhenItIsNotInMemory) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  volume->forget(inode, 1);
  volume.settle();
  EXPECT_EQ(5, volume.stat_of(inode).st_size);
  EXPECT_EQ("bytes", must(volume.read(inode)));
  EXPECT_OK(volume->unlink(kRootInode, "f"));
  EXPECT_ERROR(ESTALE, volume->attributes(inode));
  EXPECT_ERROR(ESTALE, volume->open(inode, O_RDONLY, kRoot));
}

TEST(Names, ForgottenInodesLeaveMemory) {
  TestVolume volume;
  for (int i = 0; i < 100; ++i) {
    const InodeNumber inode = volume.store_file(kRootInode, std::to_string(i), "x");
    must(volume->lookup(kRootInode, std::to_string(i)));
    volume->forget(inode, 1);
    EXPECT_LT(0u, volume->counts().inodes_cached);
    volume->forget(inode, 1);
  }
  EXPECT_EQ(0u, volume->counts().inodes_cached);
  volume->forget(12345, 1);  // one it does not know
}

TEST(Names, UnlinkTakesTheNameAndKeepsOpenFiles) {
  TestVolume volume;
  volume.start();
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  const std::string backing = volume.backing_path_of(inode);
  OpenFile& file = volume.open(inode, O_RDONLY);
  volume->forget(inode, 1);
  EXPECT_OK(volume->unlink(kRootInode, "f"));
  EXPECT_ERROR(ENOENT, volume->lookup(kRootInode, "f"));
  EXPECT_ERROR(ENOENT, volume->unlink(kRootInode, "f"));
  EXPECT_EQ(0u, volume.stat_of(inode).st_nlink);
  std::string bytes(5, ' ');
  EXPECT_EQ(5u, must(volume->read(file, std::as_writable_bytes(std::span(bytes)), 0)));
  EXPECT_EQ("bytes", bytes);
  volume->release(file);
  EXPECT_TRUE(TestVolume::wait_for([&] { return !TestVolume::exists(backing); }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !must(volume.catalog().find_inode(inode)); }));
}

TEST(Names, UnlinkAndRmdirAreForTheirTypes) {
  TestVolume volume;
  volume.mkdir(kRootInode, "d");
  volume.store_file(kRootInode, "f", "x");
  EXPECT_ERROR(EISDIR, volume->unlink(kRootInode, "d"));
  EXPECT_ERROR(ENOTDIR, volume->rmdir(kRootInode, "f"));
  EXPECT_ERROR(ENOENT, volume->rmdir(kRootInode, "none"));
}

TEST(Names, RmdirRefusesADirectoryWithNames) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  volume.store_file(dir, "f", "x");
  EXPECT_ERROR(ENOTEMPTY, volume->rmdir(kRootInode, "d"));
  EXPECT_OK(volume->unlink(dir, "f"));
  EXPECT_EQ(3u, volume.stat_of(kRootInode).st_nlink);
  EXPECT_OK(volume->rmdir(kRootInode, "d"));
  EXPECT_EQ(2u, volume.stat_of(kRootInode).st_nlink);
  EXPECT_EQ(0u, volume.stat_of(dir).st_nlink);
  EXPECT_ERROR(ENOENT, volume->create(dir, "f", 0644, O_RDWR, kRoot));
  EXPECT_ERROR(ENOENT, volume->make_node(dir, "f", S_IFDIR | 0755, 0, kRoot));
  EXPECT_ERROR(ENOENT, volume->link(volume.store_file(kRootInode, "g", ""), dir, "f"));
  EXPECT_ERROR(ENOENT, volume->rename(kRootInode, "g", dir, "f", 0));
}

TEST(Names, LinkAddsANameAndALink) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  const InodeNumber inode = volume.store_file(kRootInode, "f", "bytes");
  const Entry linked = must(volume->link(inode, dir, "g"));
  EXPECT_EQ(inode, linked.inode);
  EXPECT_EQ(2u, linked.attributes.st_nlink);
  EXPECT_ERROR(EEXIST, volume->link(inode, dir, "g"));
  EXPECT_ERROR(EPERM, volume->link(dir, kRootInode, "d2"));
  EXPECT_OK(volume->unlink(kRootInode, "f"));
  EXPECT_EQ(1u, volume.stat_of(inode).st_nlink);
  EXPECT_EQ("bytes", must(volume.read_path("d/g")));
}

TEST(Names, LinkPublishes) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "tmp");
  volume.write(*made.opened.file, "bytes");
  EXPECT_EQ(DataState::kUnpublished, volume.state_of(made.entry.inode));
  must(volume->link(made.entry.inode, kRootInode, "final"));
  EXPECT_EQ(DataState::kPublished, volume.state_of(made.entry.inode));
  volume->release(*made.opened.file);
}

TEST(Names, AFileWithoutANameGetsOneByLink) {
  TestVolume volume;
  const Created made = must(volume->make_tmpfile(kRootInode, 0600, O_RDWR, kRoot));
  volume.write(*made.opened.file, "bytes");
  EXPECT_EQ(0u, volume.stat_of(made.entry.inode).st_nlink);
  EXPECT_TRUE(volume.names_in(kRootInode).empty());
  must(volume->link(made.entry.inode, kRootInode, "f"));
  volume.close(*made.opened.file);
  volume.settle();
  EXPECT_EQ("bytes", must(volume.read_path("f")));
  EXPECT_TRUE(must(volume.catalog().list_orphan_inodes(0, 10)).empty());
}

TEST(Names, AFileWithoutANameGoesWithItsLastDescriptor) {
  TestVolume volume;
  volume.start();
  const Created made = must(volume->make_tmpfile(kRootInode, 0600, O_RDWR, kRoot));
  const std::string backing = volume.backing_path_of(made.entry.inode);
  volume->forget(made.entry.inode, 1);
  volume->release(*made.opened.file);
  EXPECT_TRUE(TestVolume::wait_for([&] { return !TestVolume::exists(backing); }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->counts().unsealed == 0; }));
}

TEST(Names, ChangesOfADirectoryMoveItsTimes) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  const auto age = [&] {
    SetAttributes change;
    change.mtime = 1;
    must(volume->set_attributes(dir, change, nullptr, kRoot));
    return to_nanos(volume.stat_of(dir).st_mtim);
  };
  const auto changed = [&] { return to_nanos(volume.stat_of(dir).st_mtim) > 1; };
  EXPECT_EQ(1, age());
  const InodeNumber file = volume.store_file(dir, "f", "x");
  EXPECT_TRUE(changed());
  age();
  must(volume->link(file, dir, "g"));
  EXPECT_TRUE(changed());
  age();
  EXPECT_OK(volume->rename(dir, "g", dir, "h", 0));
  EXPECT_TRUE(changed());
  age();
  EXPECT_OK(volume->unlink(dir, "h"));
  EXPECT_TRUE(changed());
}

}  // namespace
}  // namespace kvcachefs
