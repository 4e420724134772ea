// Attributes, xattrs and ACLs, by the rules of ext4.
#include <dirent.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "fs/acl/posix_acl.h"
#include "fs/layout/layout.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

constexpr Caller kUser{.uid = 1000, .gid = 1000, .pid = 0, .umask = 0};

SetAttributes mode_change(mode_t mode) {
  SetAttributes change;
  change.mode = mode;
  return change;
}
SetAttributes size_change(std::uint64_t size) {
  SetAttributes change;
  change.size = size;
  return change;
}
SetAttributes owner_change(std::optional<uid_t> uid, std::optional<gid_t> gid) {
  SetAttributes change;
  change.uid = uid;
  change.gid = gid;
  return change;
}

mode_t bits(const struct stat& status) { return status.st_mode & 07777; }

// user::rwx user:1000:rw- group::r-x mask::rwx other::---
const std::string kAcl = [] {
  std::string value;
  const auto put = [&value](std::uint32_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) value += static_cast<char>(number >> (8 * i) & 0xff);
  };
  put(2, 4);
  for (const auto& [tag, perm, id] : {std::tuple{1u, 7u, ~0u},
                                      {2u, 6u, 1000u},
                                      {4u, 5u, ~0u},
                                      {16u, 7u, ~0u},
                                      {32u, 0u, ~0u}}) {
    put(tag, 2);
    put(perm, 2);
    put(id, 4);
  }
  return value;
}();

TEST(Attributes, ChmodAndChownAreKept) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  EXPECT_EQ(
      04755u,
      bits(must(volume->set_attributes(inode, mode_change(S_IFDIR | 04755), nullptr, kRoot))
               .attributes));
  EXPECT_EQ(static_cast<mode_t>(S_IFREG | 04755), volume.stat_of(inode).st_mode);
  EXPECT_OK(volume->set_attributes(inode, owner_change(5, 6), nullptr, kRoot));
  volume.crash_daemon();
  const struct stat status = volume.stat_of(inode);
  EXPECT_EQ(5u, status.st_uid);
  EXPECT_EQ(6u, status.st_gid);
  EXPECT_EQ(0755u, bits(status));  // the chown took suid
}

TEST(Attributes, TimesAreExact) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "f", "x");
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  for (const InodeNumber inode : {file, dir}) {
    SetAttributes change;
    change.atime = -1'500'000'001;  // before 1970
    change.mtime = 4'000'000'000'123'456'789;
    const struct stat status =
        must(volume->set_attributes(inode, change, nullptr, kRoot)).attributes;
    EXPECT_EQ(-1'500'000'001, to_nanos(status.st_atim));
    EXPECT_EQ(4'000'000'000'123'456'789, to_nanos(status.st_mtim));
    SetAttributes only_one;
    only_one.mtime = kTimeNow;
    const struct stat later =
        must(volume->set_attributes(inode, only_one, nullptr, kRoot)).attributes;
    EXPECT_EQ(-1'500'000'001, to_nanos(later.st_atim));
    EXPECT_LT(to_nanos(later.st_mtim) - file_clock_now(), kNanosPerSecond);
    EXPECT_GT(to_nanos(later.st_mtim) - file_clock_now(), -60 * kNanosPerSecond);
  }
}

TEST(Attributes, ChangesMoveTheChangeTime) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  const auto ctime = [&] { return to_nanos(volume.stat_of(inode).st_ctim); };
  const auto moves = [&](const std::function<void()>& change) {
    const UnixNanos before = ctime();
    TestVolume::wait_for([&] { return file_clock_now() > before; });
    change();
    return ctime() > before;
  };
  EXPECT_TRUE(
      moves([&] { must(volume->set_attributes(inode, mode_change(0600), nullptr, kRoot)); }));
  EXPECT_TRUE(
      moves([&] { must(volume->set_attributes(inode, owner_change(1, {}), nullptr, kRoot)); }));
  EXPECT_TRUE(moves([&] { must(volume->link(inode, kRootInode, "g")); }));
  EXPECT_TRUE(moves([&] { must(volume->unlink(kRootInode, "g")); }));
  EXPECT_TRUE(moves([&] { must(volume->rename(kRootInode, "f", kRootInode, "h", 0)); }));
  EXPECT_TRUE(moves([&] { must(volume->set_xattr(inode, "user.x", "y", 0, {})); }));
  EXPECT_TRUE(moves([&] { must(volume->remove_xattr(inode, "user.x", kRoot)); }));
  EXPECT_TRUE(
      moves([&] { must(volume->set_attributes(inode, size_change(9), nullptr, kRoot)); }));
  EXPECT_FALSE(moves([&] { must(volume.read(inode)); }));
}

TEST(Attributes, SizeIsForFiles) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  EXPECT_ERROR(EINVAL, volume->set_attributes(dir, size_change(0), nullptr, kRoot));
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  EXPECT_EQ(1ll << 40,
            must(volume->set_attributes(inode, size_change(1ull << 40), nullptr, kRoot))
                .attributes.st_size);
  EXPECT_EQ("x", must(volume.read(inode)).substr(0, 1));
}

TEST(Attributes, AreNotCachedWhileSomebodyMayWrite) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, "f");
  EXPECT_GE(0.01, made.entry.attribute_timeout_s) << "as long as the create(2) itself";
  EXPECT_EQ(0, must(volume->attributes(made.entry.inode)).timeout_s);
  volume.close(*made.opened.file);
  EXPECT_LT(0, must(volume->attributes(made.entry.inode)).timeout_s);
}

TEST(Attributes, ADirectorysGroupIsInheritedUnderSgid) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  EXPECT_OK(volume->set_attributes(dir, owner_change({}, 50), nullptr, kRoot));
  EXPECT_OK(volume->set_attributes(dir, mode_change(02777), nullptr, kRoot));
  const InodeNumber sub = must(volume->make_node(dir, "sub", S_IFDIR | 0755, 0, kUser)).inode;
  const Created file = must(volume->create(dir, "f", 0644, O_RDWR, kUser));
  EXPECT_EQ(50u, volume.stat_of(sub).st_gid);
  EXPECT_EQ(02755u, bits(volume.stat_of(sub)));
  EXPECT_EQ(50u, file.entry.attributes.st_gid);
  EXPECT_EQ(0644u, bits(file.entry.attributes));
}

TEST(Attributes, TheUmaskIsApplied) {
  TestVolume volume;
  const Caller caller{.uid = 0, .gid = 0, .pid = 1, .umask = 027};
  EXPECT_EQ(
      0750u,
      bits(must(volume->make_node(kRootInode, "d", S_IFDIR | 0777, 0, caller)).attributes));
  EXPECT_EQ(0777u, bits(must(volume->make_symlink(kRootInode, "l", "t", caller)).attributes));
}

// ---- what a name says ----

TEST(KnownNames, AreShownByXattrsThatAreNotListed) {
  TestVolume volume;
  const std::string hash = "9c41d0" + std::string(58, 'a');
  InodeNumber at = kRootInode;
  for (const char* name : {"kv", "meta-llama_Llama-3.1-8B_1a2b3c4d5e6f_r0", "9c4", "1d_g0"})
    at = volume.mkdir(at, name);
  const InodeNumber block = volume.store_file(at, hash + ".bin", "x");
  EXPECT_EQ("vllm", must(volume->get_xattr(block, "user.kvcachefs.runtime")));
  EXPECT_EQ("meta-llama_Llama-3.1-8B", must(volume->get_xattr(block, "user.kvcachefs.model")));
  EXPECT_EQ(hash, must(volume->get_xattr(block, "user.kvcachefs.prefix")));
  EXPECT_EQ("cache", must(volume->get_xattr(block, "user.kvcachefs.policy")));
  EXPECT_EQ("", must(volume->list_xattrs(block, kRoot)));
  const InodeNumber plain = volume.store_file(at, "notes.txt", "x");
  EXPECT_ERROR(ENODATA, volume->get_xattr(plain, "user.kvcachefs.runtime"));
  EXPECT_ERROR(ENODATA, volume->get_xattr(block, "user.kvcachefs.unheard-of"));
  EXPECT_ERROR(EPERM, volume->set_xattr(block, "user.kvcachefs.model", "other", 0, kRoot));
  EXPECT_ERROR(EOPNOTSUPP, volume->set_xattr(block, "user.kvcachefs.other", "x", 0, kRoot));
}

TEST(KnownNames, ADirectoryCanBeToldItsLayout) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "slots");
  const InodeNumber slot = volume.store_file(dir, "user0.bin", "x");
  EXPECT_ERROR(ENODATA, volume->get_xattr(slot, "user.kvcachefs.runtime"));
  EXPECT_ERROR(EINVAL, volume->set_xattr(dir, kToldXattr, "llama", 0, kRoot));
  EXPECT_ERROR(ENOTDIR, volume->set_xattr(slot, kToldXattr, "llama_cpp", 0, kRoot));
  must(volume->set_xattr(dir, kToldXattr, "llama_cpp", 0, kRoot));
  EXPECT_EQ("llama_cpp", must(volume->get_xattr(slot, "user.kvcachefs.runtime")));
  EXPECT_EQ("llama_cpp", must(volume->get_xattr(dir, kToldXattr)));
  must(volume->remove_xattr(dir, kToldXattr, kRoot));
  EXPECT_ERROR(ENODATA, volume->get_xattr(slot, "user.kvcachefs.runtime"));
}

// ---- suid, sgid, capabilities ----

TEST(Privileges, AWriteByAUserTakesThem) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  must(volume->set_attributes(inode, mode_change(06777), nullptr, kRoot));
  must(volume->set_xattr(inode, "security.capability", "caps", 0, {}));
  OpenFile& file = volume.open(inode, O_RDWR);
  must(volume->write(file, std::as_bytes(std::span("y", 1)), 0, kUser));
  EXPECT_EQ(0777u, bits(volume.stat_of(inode)));
  EXPECT_ERROR(ENODATA, volume->get_xattr(inode, "security.capability"));
  EXPECT_TRUE(volume.notifications().has_attributes(inode));
  volume.close(file);
}

TEST(Privileges, AWriteByRootTakesCapabilitiesOnly) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  must(volume->set_attributes(inode, mode_change(06777), nullptr, kRoot));
  must(volume->set_xattr(inode, "security.capability", "caps", 0, {}));
  OpenFile& file = volume.open(inode, O_RDWR);
  volume.write(file, "y");
  EXPECT_EQ(06777u, bits(volume.stat_of(inode)));
  EXPECT_ERROR(ENODATA, volume->get_xattr(inode, "security.capability"));
  volume.close(file);
}

TEST(Privileges, SgidWithoutGroupExecuteIsKeptByMembersOfTheGroup) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  must(volume->set_attributes(inode, owner_change({}, kUser.gid), nullptr, kRoot));
  must(volume->set_attributes(inode, mode_change(02666), nullptr, kRoot));
  OpenFile& file = volume.open(inode, O_RDWR);
  must(volume->write(file, std::as_bytes(std::span("y", 1)), 0, kUser));
  EXPECT_EQ(02666u, bits(volume.stat_of(inode)));
  const Caller stranger{.uid = 1001, .gid = 1001, .pid = 0, .umask = 0};
  must(volume->write(file, std::as_bytes(std::span("z", 1)), 0, stranger));
  EXPECT_EQ(0666u, bits(volume.stat_of(inode)));
  volume.close(file);
}

TEST(Privileges, FallocateTruncateAndOpenTruncatingTakeThem) {
  TestVolume volume;
  const auto strips = [&](const std::function<void(InodeNumber)>& change) {
    static int count = 0;
    const InodeNumber inode =
        volume.store_file(kRootInode, "f" + std::to_string(count++), "bytes");
    must(volume->set_attributes(inode, mode_change(06777), nullptr, kRoot));
    change(inode);
    return bits(volume.stat_of(inode)) == 0777;
  };
  EXPECT_TRUE(strips([&](InodeNumber inode) {
    OpenFile& file = volume.open(inode, O_RDWR);
    must(volume->fallocate(file, 0, 0, 100, kUser));
    volume.close(file);
  }));
  EXPECT_TRUE(strips([&](InodeNumber inode) {
    must(volume->set_attributes(inode, size_change(1), nullptr, kUser));
  }));
  EXPECT_TRUE(strips([&](InodeNumber inode) {
    SetAttributes change = size_change(1);
    change.kill_suid_sgid = true;
    must(volume->set_attributes(inode, change, nullptr, kRoot));
  }));
  EXPECT_TRUE(strips([&](InodeNumber inode) {
    volume.close(*must(volume->open(inode, O_WRONLY | O_TRUNC, kUser)).file);
  }));
  EXPECT_TRUE(strips([&](InodeNumber inode) {
    must(volume->set_attributes(inode, owner_change(5, {}), nullptr, kRoot));
  }));
  EXPECT_FALSE(strips([&](InodeNumber inode) {
    must(volume->set_attributes(inode, size_change(1), nullptr, kRoot));
  }));
}

TEST(Privileges, ChownTakesThemFromOtherTypesButNotFromDirectories) {
  TestVolume volume;
  const InodeNumber fifo =
      must(volume->make_node(kRootInode, "p", S_IFIFO | 0777, 0, kRoot)).inode;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  for (const InodeNumber inode : {fifo, dir}) {
    must(volume->set_attributes(inode, mode_change(06777), nullptr, kRoot));
    must(volume->set_attributes(inode, owner_change(5, 5), nullptr, kRoot));
  }
  EXPECT_EQ(0777u, bits(volume.stat_of(fifo)));
  EXPECT_EQ(06777u, bits(volume.stat_of(dir)));
}

// ---- xattrs ----

TEST(Xattrs, AreSetReadListedAndRemoved) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  EXPECT_EQ("", must(volume->list_xattrs(inode, kRoot)));
  EXPECT_ERROR(ENODATA, volume->get_xattr(inode, "user.a"));
  EXPECT_ERROR(ENODATA, volume->remove_xattr(inode, "user.a", kRoot));
  const std::string odd("\0\xff=", 3);
  EXPECT_OK(volume->set_xattr(inode, "user.a", odd, 0, {}));
  EXPECT_OK(volume->set_xattr(inode, "user.b", "", 0, {}));
  EXPECT_OK(volume->set_xattr(inode, "trusted.c", "c", 0, {}));
  volume.settle();
  EXPECT_EQ(odd, must(volume->get_xattr(inode, "user.a")));
  EXPECT_EQ("", must(volume->get_xattr(inode, "user.b")));
  EXPECT_EQ(std::string("trusted.c\0user.a\0user.b\0", 24),
            must(volume->list_xattrs(inode, kRoot)));
  EXPECT_EQ(std::string("user.a\0user.b\0", 14), must(volume->list_xattrs(inode, kUser)));
  for (const char* name : {"user.a", "user.b", "trusted.c"})
    EXPECT_OK(volume->remove_xattr(inode, name, kRoot));
  EXPECT_EQ("", must(volume->list_xattrs(inode, kRoot)));
  EXPECT_EQ(0u, volume.record_of(inode).flags & kInodeHasXattr);
}

TEST(Xattrs, CreateAndReplaceAreHonoured) {
  TestVolume volume;
  const InodeNumber inode = volume.mkdir(kRootInode, "d");
  EXPECT_ERROR(ENODATA, volume->set_xattr(inode, "user.a", "1", XATTR_REPLACE, {}));
  EXPECT_OK(volume->set_xattr(inode, "user.a", "1", XATTR_CREATE, {}));
  EXPECT_ERROR(EEXIST, volume->set_xattr(inode, "user.a", "2", XATTR_CREATE, {}));
  EXPECT_OK(volume->set_xattr(inode, "user.a", "3", XATTR_REPLACE, {}));
  EXPECT_EQ("3", must(volume->get_xattr(inode, "user.a")));
}

TEST(Xattrs, OtherNamespacesAndLongValuesAreRefused) {
  TestVolume volume;
  EXPECT_ERROR(EOPNOTSUPP, volume->set_xattr(kRootInode, "system.other", "1", 0, {}));
  EXPECT_ERROR(EOPNOTSUPP, volume->get_xattr(kRootInode, "other"));
  EXPECT_ERROR(EOPNOTSUPP, volume->remove_xattr(kRootInode, "other", kRoot));
  EXPECT_ERROR(EINVAL, volume->set_xattr(kRootInode, "user.", "1", 0, {}));
  EXPECT_ERROR(E2BIG, volume->set_xattr(kRootInode, "user.a", std::string(65'537, 'x'), 0, {}));
  // Of all together an inode has a block, as on ext4.
  EXPECT_ERROR(ENOSPC,
               volume->set_xattr(kRootInode, "user.a", std::string(65'536, 'x'), 0, {}));
  const std::string longest(4096 - 16 - 4, 'x');
  EXPECT_ERROR(ENOSPC, volume->set_xattr(kRootInode, "user.a", longest + "x", 0, {}));
  EXPECT_OK(volume->set_xattr(kRootInode, "user.a", longest, 0, {}));
  EXPECT_EQ(longest, must(volume->get_xattr(kRootInode, "user.a")));
  EXPECT_ERROR(ENOSPC, volume->set_xattr(kRootInode, "user.b", "", 0, {}));
  EXPECT_OK(volume->set_xattr(kRootInode, "user.a", "", 0, {}));
  EXPECT_OK(volume->set_xattr(kRootInode, "user.b", "", 0, {}));
}

TEST(Xattrs, GoWithTheirInode) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  must(volume->set_xattr(inode, "user.a", "1", 0, {}));
  EXPECT_OK(volume->unlink(kRootInode, "f"));
  volume.settle();
  EXPECT_TRUE(must(volume.catalog().list_xattrs(inode)).empty());
}

// ---- ACLs ----

TEST(Acls, SetTheModeBits) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  EXPECT_OK(volume->set_xattr(inode, kAclAccess, kAcl, 0, {}));
  EXPECT_EQ(0770u, bits(volume.stat_of(inode)));
  EXPECT_EQ(kAcl, must(volume->get_xattr(inode, kAclAccess)));
  EXPECT_ERROR(EOPNOTSUPP, volume->set_xattr(inode, kAclAccess, "no list", 0, {}));
  EXPECT_ERROR(EINVAL, volume->set_xattr(inode, kAclAccess, kAcl.substr(0, 30), 0, {}));
}

TEST(Acls, FollowChmod) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  must(volume->set_xattr(inode, kAclAccess, kAcl, 0, {}));
  must(volume->set_attributes(inode, mode_change(0640), nullptr, kRoot));
  EXPECT_EQ(0640u, PosixAcl::parse(must(volume->get_xattr(inode, kAclAccess)))->mode_bits());
  EXPECT_EQ(0640u, bits(volume.stat_of(inode)));
}

TEST(Acls, ThatSayNoMoreThanTheModeAreNotKept) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  must(volume->set_xattr(inode, kAclAccess, kAcl, 0, {}));
  std::string minimal = kAcl.substr(0, 12) + kAcl.substr(20, 8) + kAcl.substr(36);
  EXPECT_OK(volume->set_xattr(inode, kAclAccess, minimal, 0, {}));
  EXPECT_EQ(0750u, bits(volume.stat_of(inode)));
  EXPECT_ERROR(ENODATA, volume->get_xattr(inode, kAclAccess));
}

TEST(Acls, AStrangersAccessAclTakesTheSetGroupIdBit) {
  TestVolume volume;
  const InodeNumber inode = volume.store_file(kRootInode, "f", "x");
  must(volume->set_attributes(inode, mode_change(02755), nullptr, kRoot));
  must(volume->set_xattr(inode, kAclAccess, kAcl, 0, kUser));
  EXPECT_EQ(0770u, bits(volume.stat_of(inode)));
}

TEST(Acls, AreInheritedFromADirectorysDefault) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  EXPECT_OK(volume->set_xattr(dir, kAclDefault, kAcl, 0, {}));
  EXPECT_EQ(0755u, bits(volume.stat_of(dir)));
  const Caller caller{.uid = 0, .gid = 0, .pid = 1, .umask = 077};  // of no effect
  const InodeNumber file = must(volume->create(dir, "f", 0666, O_RDWR, caller)).entry.inode;
  EXPECT_EQ(0660u, bits(volume.stat_of(file)));
  EXPECT_EQ(0660u, PosixAcl::parse(must(volume->get_xattr(file, kAclAccess)))->mode_bits());
  EXPECT_ERROR(ENODATA, volume->get_xattr(file, kAclDefault));
  const InodeNumber sub = must(volume->make_node(dir, "sub", S_IFDIR | 0777, 0, caller)).inode;
  EXPECT_EQ(0770u, bits(volume.stat_of(sub)));
  EXPECT_EQ(kAcl, must(volume->get_xattr(sub, kAclDefault)));
  volume.settle();
  EXPECT_EQ(kAcl, must(volume->get_xattr(must(volume.resolve("d/sub")), kAclDefault)));
}

TEST(Acls, DefaultsAreForDirectories) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "f", "x");
  EXPECT_ERROR(EACCES, volume->set_xattr(file, kAclDefault, kAcl, 0, {}));
}

TEST(Acls, AreRemoved) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  EXPECT_OK(volume->remove_xattr(dir, kAclDefault, kRoot));  // there is none
  must(volume->set_xattr(dir, kAclDefault, kAcl, 0, {}));
  EXPECT_OK(volume->remove_xattr(dir, kAclDefault, kRoot));
  EXPECT_ERROR(ENODATA, volume->get_xattr(dir, kAclDefault));
  const Caller caller{.uid = 0, .gid = 0, .pid = 1, .umask = 022};
  EXPECT_EQ(0644u, bits(must(volume->create(dir, "f", 0666, O_RDWR, caller)).entry.attributes));
}

}  // namespace
}  // namespace kvcachefs
