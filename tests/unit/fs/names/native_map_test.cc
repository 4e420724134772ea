// prefix/<hash>: the first copy stays, and each rule about it.
#include "fs/names/native_map.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "fs/explain/evict.h"
#include "fs/layout/layout.h"
#include "fs/names/credentials.h"
#include "tests/fakes/promise.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

const std::string kHash = "0123456789abcdef0123456789abcdef";
// Another process than this one, that lives.
const Caller kOther{.uid = 0, .gid = 0, .pid = 1, .umask = 0};

SetAttributes to_size(std::uint64_t size) {
  SetAttributes change;
  change.size = size;
  return change;
}
SetAttributes to_mode(mode_t mode) {
  SetAttributes change;
  change.mode = mode;
  return change;
}
SetAttributes to_mtime(UnixNanos time) {
  SetAttributes change;
  change.mtime = time;
  return change;
}

struct Native : ::testing::Test {
  TestVolume volume;
  InodeNumber prefix = volume.mkdir(kRootInode, "prefix");
  int round = 0;

  void publish(std::string_view hash, std::string_view bytes) {
    volume.store_file(prefix, "tmp", bytes);
    must(volume->rename(prefix, "tmp", prefix, hash, 0));
  }
  std::string content(const std::string& hash) {
    return must(volume.read_path("prefix/" + hash));
  }
};

TEST(PrefixHash, IsSixteenToHundredTwentyEightLowerCaseHexDigits) {
  for (std::size_t length = 0; length < 140; ++length) {
    const std::string name(length, 'a');
    EXPECT_EQ(length >= 16 && length <= 128, is_prefix_hash(name)) << length;
    // The table of layouts says the same.
    const auto known = recognize("prefix/" + name);
    EXPECT_EQ(is_prefix_hash(name), known && known->runtime == Runtime::kNative) << length;
  }
  for (const char* name : {"0123456789abcdeF", "0123456789abcdeg", "0123456789abcde.",
                           "-0123456789abcdef", "0123456789abcdef.tmp", "0123456789abcdef "})
    EXPECT_FALSE(is_prefix_hash(name)) << name;
}

TEST_F(Native, ACopyThatIsBeingEvictedStandsInNobodysWay) {
  publish(kHash, "first");
  volume.settle();
  volume.store_file(prefix, "tmp", "second");
  // Who evicts waits before each look at the names.
  std::atomic<pid_t> evicting{0};
  std::atomic<int> reads{0};
  std::atomic<int> allowed{0};
  std::atomic<bool> done{false};
  volume.faults().on_read = [&](Table table, std::string_view) {
    if (table != Table::kBackReferences || evicting != ::gettid()) return;
    const int own = ++reads;
    while (allowed < own) std::this_thread::yield();
  };
  std::thread other([&] {
    evicting = ::gettid();
    EXPECT_OK(volume->evict("prefix/" + kHash));
    done = true;
  });
  bool is_miss = false;
  while (!is_miss) {
    if (!TestVolume::wait_for([&] { return reads > allowed || done; }) || done) break;
    const Result<Entry> found = volume->lookup(prefix, kHash, kRoot);
    is_miss = !found.ok() && must(volume.catalog().find_dentry(prefix, kHash)).has_value();
    if (found.ok()) volume->forget(found->inode, 1);
    if (!is_miss) ++allowed;
  }
  EXPECT_TRUE(is_miss);
  EXPECT_OK(volume->rename(prefix, "tmp", prefix, kHash, 0));
  allowed = INT_MAX;
  other.join();
  EXPECT_EQ("second", content(kHash));
}

TEST_F(Native, ARenameOntoAPublishedHashSucceedsAndTheFirstCopyStays) {
  PROMISE(5);
  publish(kHash, "first");
  const InodeNumber first = must(volume.resolve("prefix/" + kHash));
  const InodeNumber second = volume.store_file(prefix, "tmp", "second");
  must(volume->lookup(prefix, "tmp"));  // the kernel knows it
  EXPECT_OK(volume->rename(prefix, "tmp", prefix, kHash, 0));
  EXPECT_EQ("first", content(kHash));
  EXPECT_EQ(first, must(volume.resolve("prefix/" + kHash)));
  EXPECT_EQ(1u, volume.stat_of(first).st_nlink);
  EXPECT_ERROR(ENOENT, volume->lookup(prefix, "tmp"));
  EXPECT_EQ(std::vector<std::string>{kHash}, volume.names_in(prefix));
  EXPECT_EQ(0u, volume.record_of(second).nlink);
  EXPECT_TRUE(volume.notifications().has_attributes(first));
  EXPECT_TRUE(volume.notifications().has_attributes(second));
  // Which would wait for the directory, and is not needed.
  EXPECT_FALSE(volume.notifications().has_entry(prefix, kHash));
}

TEST_F(Native, WhatCameSecondIsStaleButForItsOpenFiles) {
  publish(kHash, "first");
  const Created made = volume.create(prefix, "tmp");
  const InodeNumber second = made.entry.inode;
  OpenFile& file = *made.opened.file;
  volume.write(file, "second");
  EXPECT_OK(volume->rename(prefix, "tmp", prefix, kHash, 0));

  EXPECT_ERROR(ESTALE, volume->open(second, O_RDONLY, kRoot));
  EXPECT_ERROR(ESTALE, volume->open(second, O_WRONLY, kRoot));
  EXPECT_ERROR(ESTALE, volume->attributes(second));
  EXPECT_ERROR(ESTALE, volume->set_attributes(second, to_mode(0600), nullptr, kRoot));
  EXPECT_ERROR(ESTALE, volume->set_attributes(second, to_size(0), nullptr, kRoot));
  EXPECT_ERROR(ESTALE, volume->get_xattr(second, "user.a"));
  EXPECT_ERROR(ESTALE, volume->set_xattr(second, "user.a", "v", 0, kRoot));
  EXPECT_ERROR(ESTALE, volume->list_xattrs(second, kRoot));
  EXPECT_ERROR(ESTALE, volume->remove_xattr(second, "user.a", kRoot));
  EXPECT_ERROR(ESTALE, volume->link(second, kRootInode, "again"));
  EXPECT_ERROR(ESTALE, volume->lookup(second, "."));

  // Who has it open goes on.
  EXPECT_OK(volume->attributes(second, &file));
  volume.write(file, "2", 6);
  EXPECT_OK(volume->set_attributes(second, to_size(3), &file, kRoot));
  EXPECT_OK(volume->fallocate(file, 0, 0, 100, kRoot));
  std::string bytes(3, ' ');
  EXPECT_EQ(3u, must(volume->read(file, std::as_writable_bytes(std::span(bytes)), 0)));
  EXPECT_EQ("sec", bytes);
  EXPECT_OK(volume->fsync(file, false));
  const std::string backing = volume.backing_path_of(second);
  volume.close(file);
  EXPECT_EQ("first", content(kHash));

  // And then it goes, with its bytes, whatever the kernel still knows of it.
  EXPECT_ERROR(ESTALE, volume->open(second, O_RDONLY, kRoot));
  volume.start();
  EXPECT_TRUE(TestVolume::wait_for([&] { return !TestVolume::exists(backing); }));
  EXPECT_ERROR(ESTALE, volume->attributes(second));
  volume->forget(second, 1);
  EXPECT_EQ("first", content(kHash));
}

TEST_F(Native, WhatCameSecondWithAnotherNameIsAnOrdinaryFile) {
  publish(kHash, "first");
  const InodeNumber second = volume.store_file(prefix, "tmp", "second");
  must(volume->link(second, kRootInode, "mine"));
  EXPECT_OK(volume->rename(prefix, "tmp", prefix, kHash, 0));
  EXPECT_EQ("first", content(kHash));
  EXPECT_EQ("second", must(volume.read_path("mine")));
  EXPECT_EQ(1u, volume.stat_of(second).st_nlink);
  volume.rewrite(second, "third");
  EXPECT_EQ("third", must(volume.read_path("mine")));
  EXPECT_FALSE(volume.notifications().has_entry(prefix, kHash));
  // From elsewhere the kernel would keep the name.
  must(volume->link(second, kRootInode, "too"));
  EXPECT_OK(volume->rename(kRootInode, "too", prefix, kHash, 0));
  EXPECT_TRUE(volume.notifications().has_entry(prefix, kHash));
  // It can still become the file of another hash.
  EXPECT_OK(volume->rename(kRootInode, "mine", prefix, kHash + "00", 0));
  EXPECT_EQ("third", content(kHash + "00"));
}

TEST_F(Native, DuplicatesAreCountedByTheirSize) {
  publish(kHash, "first");
  publish(kHash, "other");
  publish(kHash, "longer bytes");
  EXPECT_EQ(2u, volume->counts().duplicates);
  EXPECT_EQ(1u, volume->counts().duplicates_of_other_size);
  volume.store_file(kRootInode, "f", "1");
  volume.store_file(kRootInode, "g", "2");
  EXPECT_OK(volume->rename(kRootInode, "f", kRootInode, "g", 0));
  EXPECT_EQ(2u, volume->counts().duplicates);
}

TEST_F(Native, RenamingALinkOfTheFirstCopyOntoItDoesNothing) {
  publish(kHash, "first");
  const InodeNumber first = must(volume.resolve("prefix/" + kHash));
  must(volume->link(first, kRootInode, "also"));
  EXPECT_OK(volume->rename(kRootInode, "also", prefix, kHash, 0));
  EXPECT_EQ(first, must(volume.resolve("also")));
  EXPECT_EQ(2u, volume.stat_of(first).st_nlink);
  EXPECT_EQ(0u, volume->counts().duplicates);
}

TEST_F(Native, AFirstCopyUnderAnotherHashGivesWayToo) {
  const std::string other = kHash + "ff";
  publish(kHash, "first");
  publish(other, "other");
  EXPECT_OK(volume->rename(prefix, other, prefix, kHash, 0));
  EXPECT_EQ("first", content(kHash));
  EXPECT_ERROR(ENOENT, volume.resolve("prefix/" + other));
}

TEST_F(Native, WhatMustBeNewIsRefused) {
  publish(kHash, "first");
  const InodeNumber other = volume.store_file(prefix, "tmp", "second");
  EXPECT_ERROR(EEXIST, volume->link(other, prefix, kHash));
  EXPECT_ERROR(EEXIST, volume->rename(prefix, "tmp", prefix, kHash, RENAME_NOREPLACE));
  EXPECT_ERROR(EEXIST, volume->rename(prefix, "tmp", prefix, kHash, RENAME_EXCHANGE));
  EXPECT_ERROR(EEXIST, volume->rename(prefix, kHash, prefix, "tmp", RENAME_EXCHANGE));
  EXPECT_ERROR(EEXIST, volume->create(prefix, kHash, 0644, O_RDWR | O_EXCL, kRoot));
  EXPECT_ERROR(EEXIST, volume->create(prefix, kHash, 0644, O_RDWR, kRoot));
  EXPECT_ERROR(EEXIST, volume->make_node(prefix, kHash, S_IFREG | 0644, 0, kRoot));
  EXPECT_ERROR(EEXIST, volume->make_symlink(prefix, kHash, "tmp", kRoot));
  must(volume->make_symlink(prefix, "symlink", "tmp", kRoot));
  EXPECT_ERROR(EEXIST, volume->rename(prefix, "symlink", prefix, kHash, 0));
  volume.mkdir(prefix, "directory");
  EXPECT_ERROR(ENOTDIR, volume->rename(prefix, "directory", prefix, kHash, 0));
  EXPECT_EQ("first", content(kHash));
  EXPECT_EQ("second", must(volume.read_path("prefix/tmp")));
  EXPECT_EQ(0u, volume->counts().duplicates);
}

TEST_F(Native, APublishedHashIsNeverWrittenAgain) {
  publish(kHash, "first");
  const InodeNumber first = must(volume.resolve("prefix/" + kHash));
  must(volume->link(first, kRootInode, "session link"));
  for (const int flags :
       {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_WRONLY | O_TRUNC, O_WRONLY | O_APPEND})
    EXPECT_ERROR(EEXIST, volume->open(first, flags, kRoot)) << flags;
  EXPECT_ERROR(EEXIST, volume->set_attributes(first, to_size(0), nullptr, kRoot));
  EXPECT_OK(volume->set_attributes(first, to_mode(0444), nullptr, kRoot));
  EXPECT_OK(volume->set_attributes(first, to_mtime(7), nullptr, kRoot));
  EXPECT_OK(volume->set_xattr(first, "user.a", "v", 0, kRoot));
  volume.settle();
  EXPECT_EQ(DataState::kSealed, volume.state_of(first));
  EXPECT_ERROR(EEXIST, volume->open(first, O_RDWR, kRoot));
  EXPECT_EQ("first", content(kHash));
}

TEST_F(Native, WhoHadItOpenCanNoLongerCutOrGrowIt) {
  const Created made = volume.create(prefix, "tmp");
  OpenFile& file = *made.opened.file;
  volume.write(file, "first");
  EXPECT_OK(volume->set_attributes(made.entry.inode, to_size(5), &file, kRoot));
  EXPECT_OK(volume->rename(prefix, "tmp", prefix, kHash, 0));
  EXPECT_ERROR(EEXIST, volume->set_attributes(made.entry.inode, to_size(1), &file, kRoot));
  EXPECT_ERROR(EEXIST, volume->fallocate(file, 0, 0, 100, kRoot));
  const InodeNumber source = volume.store_file(kRootInode, "source", "source");
  OpenFile& from = volume.open(source, O_RDONLY);
  EXPECT_ERROR(EEXIST, volume->copy_range(from, 0, file, 0, 6, kRoot));
  volume->release(from);
  volume.close(file);
  EXPECT_EQ("first", content(kHash));
}

TEST_F(Native, UnlinkFreesTheHash) {
  publish(kHash, "first");
  const InodeNumber first = must(volume.resolve("prefix/" + kHash));
  must(volume->link(first, kRootInode, "kept"));
  EXPECT_OK(volume->unlink(prefix, kHash));
  EXPECT_ERROR(ENOENT, volume->lookup(prefix, kHash));
  publish(kHash, "second");
  EXPECT_EQ("second", content(kHash));
  EXPECT_EQ("first", must(volume.read_path("kept")));
  EXPECT_ERROR(EEXIST, volume->open(first, O_WRONLY, kRoot));
  EXPECT_EQ(0u, volume->counts().duplicates);
}

TEST_F(Native, RenamedAwayItStaysAsItIsAndFreesTheHash) {
  publish(kHash, "first");
  EXPECT_OK(volume->rename(prefix, kHash, kRootInode, "plain", 0));
  publish(kHash, "second");
  EXPECT_EQ("second", content(kHash));
  EXPECT_EQ("first", must(volume.read_path("plain")));
  EXPECT_ERROR(EEXIST, volume->open(must(volume.resolve("plain")), O_RDWR, kRoot));
  // Under its new name it is replaced as any file.
  volume.store_file(kRootInode, "tmp", "third");
  EXPECT_OK(volume->rename(kRootInode, "tmp", kRootInode, "plain", 0));
  EXPECT_EQ("third", must(volume.read_path("plain")));
}

TEST_F(Native, ALinkPublishes) {
  const Created made = must(volume->make_tmpfile(prefix, 0644, O_RDWR, kRoot));
  volume.write(*made.opened.file, "first");
  must(volume->link(made.entry.inode, prefix, kHash));
  EXPECT_ERROR(EEXIST, volume->open(made.entry.inode, O_WRONLY, kRoot));
  volume.close(*made.opened.file);
  publish(kHash, "second");
  EXPECT_EQ("first", content(kHash));
}

// ---- written under the hash itself ----

TEST_F(Native, WhatIsWrittenUnderItsHashIsAMissToOthersUntilItIsClosed) {
  const Created made = volume.create(prefix, kHash);
  EXPECT_EQ(0, made.entry.entry_timeout_s);
  volume.write(*made.opened.file, "first");
  double timeout = -1;
  EXPECT_ERROR(ENOENT, volume->lookup(prefix, kHash, kOther, &timeout));
  EXPECT_EQ(0, timeout);
  EXPECT_ERROR(ENOENT, volume->lookup(prefix, kHash));  // a caller who cannot be seen
  // Its own process can give it up.
  EXPECT_EQ(0, must(volume->lookup(prefix, kHash, kRoot)).entry_timeout_s);
  EXPECT_ERROR(EEXIST, volume->create(prefix, kHash, 0644, O_RDWR, kOther));
  EXPECT_ERROR(EEXIST, volume->open(made.entry.inode, O_WRONLY, kRoot));
  EXPECT_OK(volume->set_attributes(made.entry.inode, to_size(4), made.opened.file, kRoot));
  volume.close(*made.opened.file);
  EXPECT_EQ(1, must(volume->lookup(prefix, kHash, kOther)).entry_timeout_s);
  EXPECT_EQ("firs", content(kHash));
  EXPECT_ERROR(EEXIST, volume->open(made.entry.inode, O_WRONLY, kRoot));
}

TEST_F(Native, ACloseBeforeTheFirstByteDoesNotPublish) {
  const Created made = volume.create(prefix, kHash);
  EXPECT_OK(volume->flush(*made.opened.file, kRoot));
  EXPECT_ERROR(ENOENT, volume->lookup(prefix, kHash, kOther));
  volume.write(*made.opened.file, "bytes");
  EXPECT_OK(volume->flush(*made.opened.file, kRoot));
  EXPECT_OK(volume->lookup(prefix, kHash, kOther));
  volume->release(*made.opened.file);
  // An empty one, at its last close.
  const Created empty = volume.create(prefix, kHash + "00");
  EXPECT_OK(volume->flush(*empty.opened.file, kRoot));
  EXPECT_ERROR(ENOENT, volume->lookup(prefix, kHash + "00", kOther));
  volume->release(*empty.opened.file);
  EXPECT_OK(volume->lookup(prefix, kHash + "00", kOther));
}

TEST_F(Native, WhatNobodyCanWriteIsPublishedAtOnce) {
  const Created made = volume.create(prefix, kHash, O_RDONLY);
  EXPECT_OK(volume->lookup(prefix, kHash, kOther));
  volume->release(*made.opened.file);
  must(volume->make_node(prefix, kHash + "00", S_IFREG | 0644, 0, kRoot));
  EXPECT_OK(volume->lookup(prefix, kHash + "00", kOther));
}

TEST_F(Native, ARenameReplacesWhatIsStillBeingWritten) {
  const Created slow = volume.create(prefix, kHash);
  volume.write(*slow.opened.file, "sl");
  publish(kHash, "whole");
  EXPECT_EQ("whole", content(kHash));
  volume.write(*slow.opened.file, "slow");
  volume.close(*slow.opened.file);
  EXPECT_EQ("whole", content(kHash));
  EXPECT_EQ(1u, volume->counts().duplicates);
  EXPECT_EQ(0u, volume->counts().duplicates_of_other_size);
}

TEST_F(Native, ACrashLeavesNoUnfinishedCopyAndEachPublishedOne) {
  publish(kHash, "first");
  publish(kHash, "second");
  const Created made = volume.create(prefix, kHash + "00");
  volume.write(*made.opened.file, "unfinished");
  volume.crash_daemon();
  EXPECT_EQ("first", content(kHash));
  EXPECT_EQ(std::vector<std::string>{kHash}, volume.names_in(prefix));
  // The rules hold on.
  EXPECT_ERROR(EEXIST, volume->open(must(volume.resolve("prefix/" + kHash)), O_RDWR, kRoot));
  publish(kHash, "third");
  publish(kHash + "00", "fourth");
  EXPECT_EQ("first", content(kHash));
  EXPECT_EQ("fourth", content(kHash + "00"));
}

TEST_F(Native, AFirstCopyWhoseBytesAreLostGivesWay) {
  publish(kHash, "first");
  volume.settle();
  ASSERT_EQ(0,
            ::unlink(volume.backing_path_of(must(volume.resolve("prefix/" + kHash))).c_str()));
  publish(kHash, "second");
  EXPECT_EQ("second", content(kHash));
  EXPECT_EQ(0u, volume->counts().duplicates);
}

// ---- where it holds ----

TEST_F(Native, OtherNamesAndOtherPlacesAreOrdinary) {
  volume.store_file(prefix, "name", "old");
  volume.store_file(prefix, "tmp", "new");
  EXPECT_OK(volume->rename(prefix, "tmp", prefix, "name", 0));
  EXPECT_EQ("new", must(volume.read_path("prefix/name")));
  for (const InodeNumber place : {kRootInode, volume.mkdir(prefix, "below")}) {
    volume.store_file(place, kHash, "old");
    volume.store_file(place, "tmp", "new");
    EXPECT_OK(volume->rename(place, "tmp", place, kHash, 0));
    const InodeNumber inode = must(volume->lookup(place, kHash)).inode;
    EXPECT_EQ("new", must(volume.read(inode)));
    volume.rewrite(inode, "newer");
    EXPECT_EQ(10, must(volume->lookup(place, kHash)).entry_timeout_s);
  }
  EXPECT_EQ(0u, volume->counts().duplicates);
}

TEST_F(Native, TheKernelKeepsNamesAsLongAsTheyHold) {
  EXPECT_EQ(0, volume.create(prefix, "tmp").entry.entry_timeout_s);
  EXPECT_EQ(0, must(volume->lookup(prefix, "tmp")).entry_timeout_s);
  must(volume->rename(prefix, "tmp", prefix, "other", 0));
  publish(kHash, "first");
  const Entry entry = must(volume->lookup(prefix, kHash));
  EXPECT_EQ(1, entry.entry_timeout_s);
  EXPECT_EQ(1, must(volume->link(entry.inode, prefix, kHash + "00")).entry_timeout_s);
  // Of a missing name once it has been asked for often.
  const auto miss_timeouts = [this](InodeNumber directory, const std::string& name) {
    double timeout = -1;
    for (unsigned asked = 1; asked < LookupCounts::kOften; ++asked) {
      EXPECT_ERROR(ENOENT, volume->lookup(directory, name, kOther, &timeout));
      EXPECT_EQ(0, timeout) << name << asked;
    }
    EXPECT_ERROR(ENOENT, volume->lookup(directory, name, kOther, &timeout));
    return timeout;
  };
  EXPECT_EQ(1, miss_timeouts(prefix, kHash + "11"));
  EXPECT_EQ(kNegativeTimeout, miss_timeouts(kRootInode, "none"));
}

TEST_F(Native, TheDirectoryNamedPrefixInTheRootIsIt) {
  const auto keeps_the_first = [this](InodeNumber directory) {
    const std::string hash = "00000000000000" + std::to_string(10 + ++round);
    for (const char* bytes : {"first", "second"}) {
      volume.store_file(directory, "tmp", bytes);
      must(volume->rename(directory, "tmp", directory, hash, 0));
    }
    return must(volume.read(must(volume->lookup(directory, hash)).inode)) == "first";
  };
  EXPECT_TRUE(keeps_the_first(prefix));
  EXPECT_OK(volume->rename(kRootInode, "prefix", kRootInode, "old", 0));
  EXPECT_FALSE(keeps_the_first(prefix));
  const InodeNumber fresh = volume.mkdir(kRootInode, "prefix");
  EXPECT_TRUE(keeps_the_first(fresh));
  EXPECT_OK(volume->rename(kRootInode, "prefix", kRootInode, "old", RENAME_EXCHANGE));
  EXPECT_TRUE(keeps_the_first(prefix));
  EXPECT_FALSE(keeps_the_first(fresh));
  volume.settle();
  EXPECT_TRUE(keeps_the_first(prefix));
  // Replaced by another, then removed.
  const InodeNumber empty = volume.mkdir(kRootInode, "empty");
  EXPECT_OK(volume->rename(kRootInode, "prefix", empty, "deeper", 0));
  EXPECT_FALSE(keeps_the_first(prefix));
  const InodeNumber last = volume.mkdir(kRootInode, "prefix");
  const InodeNumber moved = volume.mkdir(kRootInode, "moved");
  EXPECT_OK(volume->rename(kRootInode, "moved", kRootInode, "prefix", 0));
  EXPECT_EQ(0u, volume.stat_of(last).st_nlink);
  EXPECT_TRUE(keeps_the_first(moved));
  for (const std::string& name : volume.names_in(moved)) EXPECT_OK(volume->unlink(moved, name));
  EXPECT_OK(volume->rmdir(kRootInode, "prefix"));
  must(volume->make_symlink(kRootInode, "prefix", "old", kRoot));
  EXPECT_FALSE(keeps_the_first(fresh));
}

TEST(SameProcess, IsSeenInProc) {
  EXPECT_TRUE(is_same_process(kRoot, ::getpid()));
  EXPECT_FALSE(is_same_process(kRoot, 1));
  EXPECT_FALSE(is_same_process(kOther, ::getpid()));
  EXPECT_FALSE(is_same_process({}, ::getpid()));
  EXPECT_FALSE(is_same_process(kRoot, 0));
  pid_t thread = 0;
  std::thread([&] {
    thread = ::gettid();
    EXPECT_TRUE(is_same_process(kRoot, thread));
    EXPECT_TRUE(is_same_process({.uid = 0, .gid = 0, .pid = thread, .umask = 0}, ::getpid()));
  }).join();
  EXPECT_TRUE(TestVolume::wait_for([&] { return !is_same_process(kRoot, thread); }));
}

}  // namespace
}  // namespace kvcachefs
