// What directories and files are told, and what holds where nobody says anything.
#include "fs/known/file_policy.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "fs/known/knowledge.h"
#include "tests/unit/fs/known/known_rows.h"

namespace kvcachefs {
namespace {

using std::chrono::seconds;
using testing::lmcache_name;
using testing::must;
using testing::TestVolume;

class FilePolicies : public ::testing::Test {
 protected:
  void tell(InodeNumber inode, std::string_view policy) {
    must(volume_->set_xattr(inode, kPolicyXattr, policy, 0, kRoot));
  }
  void tell_ttl(InodeNumber inode, std::string_view ttl) {
    must(volume_->set_xattr(inode, kTtlXattr, ttl, 0, kRoot));
  }
  std::string policy(InodeNumber inode) {
    return must(volume_->get_xattr(inode, kPolicyXattr));
  }
  std::string ttl(InodeNumber inode) {
    const auto found = volume_->get_xattr(inode, kTtlXattr);
    return found.ok() ? *found : found.error().code == ENODATA ? "none" : "error";
  }
  // Beside the volume's own, with another default.
  Treatment treatment(InodeNumber inode, FilePolicy otherwise = FilePolicy::kCache) {
    InodeTable table{volume_.catalog(), [](const Inode&) {}};
    Knowledge knowledge{volume_.catalog(), table, otherwise};
    return must(knowledge.treatment(inode, volume_.record_of(inode)));
  }
  // As an application leaves it.
  InodeNumber fsynced(InodeNumber parent, const std::string& name) {
    const Created made = volume_.create(parent, name);
    volume_.write(*made.opened.file, "x");
    must(volume_->fsync(*made.opened.file, false));
    volume_.close(*made.opened.file);
    return made.entry.inode;
  }

  TestVolume volume_;
};

TEST_F(FilePolicies, AreCheckedWhenTheyAreSet) {
  const InodeNumber file = volume_.store_file(kRootInode, "f", "x");
  for (const char* good : {"cache", "process", "keep", "pin"}) tell(file, good);
  for (const char* bad : {"", "Cache", "cache ", "keep\n", "evict"})
    EXPECT_ERROR(EINVAL, volume_->set_xattr(file, kPolicyXattr, bad, 0, kRoot)) << bad;
  for (const char* good : {"1s", "90s", "90", "12h", "7d", "3650d"}) tell_ttl(file, good);
  for (const char* bad : {"", "0s", "-1s", "999ms", "3651d", "7 days", "soon"})
    EXPECT_ERROR(EINVAL, volume_->set_xattr(file, kTtlXattr, bad, 0, kRoot)) << bad;
  const InodeNumber pipe =
      must(volume_->make_node(kRootInode, "p", S_IFIFO | 0644, 0, kRoot)).inode;
  EXPECT_ERROR(EPERM, volume_->set_xattr(pipe, kPolicyXattr, "keep", 0, kRoot));
}

TEST_F(FilePolicies, AreOrdinaryXattrsWhereTheyWereTold) {
  const InodeNumber directory = volume_.mkdir(kRootInode, "d");
  const InodeNumber file = volume_.store_file(directory, "f", "x");
  EXPECT_ERROR(ENODATA, volume_->get_xattr(directory, kPolicyXattr));
  tell(directory, "keep");
  tell_ttl(directory, "7d");
  EXPECT_EQ("keep", policy(directory));
  EXPECT_EQ("7d", ttl(directory));
  EXPECT_EQ(std::string("user.kvcachefs.policy\0user.kvcachefs.ttl\0", 41),
            must(volume_->list_xattrs(directory, kRoot)));
  EXPECT_EQ("", must(volume_->list_xattrs(file, kRoot)));
  EXPECT_ERROR(ENODATA, volume_->remove_xattr(file, kPolicyXattr, kRoot));
  must(volume_->remove_xattr(directory, kPolicyXattr, kRoot));
  EXPECT_ERROR(ENODATA, volume_->get_xattr(directory, kPolicyXattr));
}

TEST_F(FilePolicies, AreOfTheNearestThatWasTold) {
  const InodeNumber a = volume_.mkdir(kRootInode, "a");
  const InodeNumber b = volume_.mkdir(a, "b");
  const InodeNumber file = volume_.store_file(b, "f", "x");
  EXPECT_EQ("cache", policy(file));
  tell(kRootInode, "process");
  EXPECT_EQ("process", policy(file));
  tell(a, "pin");
  EXPECT_EQ("pin", policy(file));
  EXPECT_EQ("pin", policy(b));
  tell(b, "keep");
  EXPECT_EQ("keep", policy(file));
  EXPECT_EQ(PolicyBy::kDirectory, treatment(file).by);
  tell(file, "cache");
  EXPECT_EQ("cache", policy(file));
  EXPECT_EQ(PolicyBy::kFile, treatment(file).by);
  must(volume_->remove_xattr(file, kPolicyXattr, kRoot));
  must(volume_->remove_xattr(b, kPolicyXattr, kRoot));
  must(volume_->remove_xattr(a, kPolicyXattr, kRoot));
  EXPECT_EQ("process", policy(file));
}

TEST_F(FilePolicies, FollowRenamesAndRestarts) {
  const InodeNumber kept = volume_.mkdir(kRootInode, "kept");
  const InodeNumber plain = volume_.mkdir(kRootInode, "plain");
  const InodeNumber inner = volume_.mkdir(plain, "inner");
  const InodeNumber file = volume_.store_file(inner, "f", "x");
  tell(kept, "keep");
  EXPECT_EQ("cache", policy(file));
  must(volume_->rename(plain, "inner", kept, "inner", 0, kRoot));
  EXPECT_EQ("keep", policy(file));
  volume_.settle();
  EXPECT_EQ("keep", policy(file));
  must(volume_->rename(kept, "inner", plain, "inner", 0, kRoot));
  EXPECT_EQ("cache", policy(file));
}

TEST_F(FilePolicies, AreOfTheLayoutWhereNobodyWasTold) {
  const InodeNumber block = volume_.store_file(kRootInode, lmcache_name(1), "x");
  EXPECT_EQ(FilePolicy::kCache, treatment(block, FilePolicy::kKeep).policy);
  EXPECT_EQ(PolicyBy::kLayout, treatment(block).by);
  const InodeNumber bucket = volume_.store_file(kRootInode, "1234567890123.bucket", "x");
  EXPECT_EQ("keep", policy(bucket));
  const InodeNumber slots = volume_.mkdir(kRootInode, "slots");
  const InodeNumber slot = volume_.store_file(slots, "user0", "x");
  EXPECT_EQ("cache", policy(slot));
  must(volume_->set_xattr(slots, kToldXattr, "llama_cpp", 0, kRoot));
  EXPECT_EQ("keep", policy(slot));
  tell(slots, "cache");
  EXPECT_EQ("cache", policy(slot));
}

TEST_F(FilePolicies, AreOfTheMountWhereNothingIsKnown) {
  const InodeNumber file = volume_.store_file(kRootInode, "notes.txt", "x");
  EXPECT_EQ(FilePolicy::kCache, treatment(file).policy);
  EXPECT_EQ(FilePolicy::kKeep, treatment(file, FilePolicy::kKeep).policy);
  EXPECT_EQ(PolicyBy::kMount, treatment(file).by);
}

TEST_F(FilePolicies, KeepWhatAnApplicationFsyncs) {
  const InodeNumber database = fsynced(kRootInode, "app.db");
  EXPECT_EQ("keep", policy(database));
  EXPECT_EQ(PolicyBy::kApplication, treatment(database).by);
  // A runtime that fsyncs its blocks makes no applications' files of them.
  EXPECT_EQ("cache", policy(fsynced(kRootInode, lmcache_name(1))));
  EXPECT_EQ("cache", policy(fsynced(kRootInode, lmcache_name(2) + ".tmp")));
  tell(kRootInode, "process");
  EXPECT_EQ("process", policy(database));
}

TEST_F(FilePolicies, AreTheStrictestOfSeveralNames) {
  const InodeNumber kept = volume_.mkdir(kRootInode, "kept");
  const InodeNumber pinned = volume_.mkdir(kRootInode, "pinned");
  tell(kept, "keep");
  tell(pinned, "pin");
  const InodeNumber file = volume_.store_file(kRootInode, "f", "x");
  must(volume_->link(file, kept, "f", kRoot));
  EXPECT_EQ("keep", policy(file));
  must(volume_->link(file, pinned, "f", kRoot));
  EXPECT_EQ("pin", policy(file));
  must(volume_->unlink(pinned, "f"));
  EXPECT_EQ("keep", policy(file));
  must(volume_->unlink(kept, "f"));
  EXPECT_EQ("cache", policy(file));
}

TEST_F(FilePolicies, DoNotKeepABlockForItsEntriesOfSessions) {
  const InodeNumber prefix = volume_.mkdir(kRootInode, "prefix");
  const InodeNumber sessions = volume_.mkdir(kRootInode, "session");
  const InodeNumber session = volume_.mkdir(sessions, "s");
  const InodeNumber block = fsynced(prefix, std::string(64, 'a'));
  must(volume_->link(block, session, "0", kRoot));
  EXPECT_EQ("cache", policy(block));
}

TEST_F(FilePolicies, ExpireWhereAllNamesDo) {
  const InodeNumber day = volume_.mkdir(kRootInode, "day");
  const InodeNumber week = volume_.mkdir(kRootInode, "week");
  tell_ttl(day, "1d");
  tell_ttl(week, "7d");
  const InodeNumber file = volume_.store_file(day, "f", "x");
  EXPECT_EQ("86400s", ttl(file));
  must(volume_->link(file, week, "f", kRoot));
  EXPECT_EQ("604800s", ttl(file));
  must(volume_->link(file, kRootInode, "f", kRoot));
  EXPECT_EQ("none", ttl(file));
  tell_ttl(file, "90s");
  EXPECT_EQ("90s", ttl(file));
  EXPECT_EQ(seconds(90), treatment(file).ttl);
}

TEST_F(FilePolicies, NeverExpireWhatIsKept) {
  tell_ttl(kRootInode, "1h");
  EXPECT_EQ(std::nullopt, treatment(fsynced(kRootInode, "app.db")).ttl);
  const InodeNumber file = volume_.store_file(kRootInode, "f", "x");
  EXPECT_EQ(seconds(3600), treatment(file).ttl);
  tell(file, "pin");
  EXPECT_EQ(std::nullopt, treatment(file).ttl);
  tell(file, "process");
  EXPECT_EQ(seconds(3600), treatment(file).ttl);
}

TEST(FirstPath, IsThatOfTheFirstName) {
  TestVolume volume;
  const InodeNumber directory = volume.mkdir(kRootInode, "d");
  const InodeNumber file = volume.store_file(directory, "f", "x");
  EXPECT_EQ("d/f", must(first_path(volume.catalog(), file)));
  EXPECT_EQ("d", must(first_path(volume.catalog(), directory)));
  EXPECT_EQ("", must(first_path(volume.catalog(), kRootInode)));
  must(volume->unlink(directory, "f"));
  EXPECT_ERROR(ENOENT, first_path(volume.catalog(), file));
}

}  // namespace
}  // namespace kvcachefs
