// A volume whose budget is small: who goes, who stays, and what it says when nobody can go.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>

#include "backend/base/clock.h"
#include "fs/known/file_policy.h"
#include "fs/node/open_file.h"
#include "tests/fakes/promise.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs::testing {
namespace {

constexpr std::uint64_t kBudget = 4 * kMiB;
constexpr std::size_t kFile = 128 * kKiB;

TestVolumeOptions small(std::chrono::nanoseconds lease = std::chrono::nanoseconds{1}) {
  TestVolumeOptions options;
  options.volume.budget.lease = lease;
  options.volume.budget.devices = {
      {.size = kBudget, .min_free = {.bytes = 4096, .percent = 0}}};
  return options;
}

const std::string kBytes(kFile, 'k');

std::uint64_t used(TestVolume& volume) { return volume->room_on(0).usage.all(); }

std::string describe(TestVolume& volume) {
  const DeviceRoom seen = volume->room_on(0);
  std::ostringstream out;
  out << "budget " << seen.room.budget << " room " << seen.room.bytes << " headroom "
      << seen.marks.headroom << " evictable " << seen.usage.evictable << " kept "
      << seen.usage.kept << " settling " << seen.usage.settling << " live " << seen.usage.live
      << " leaving " << seen.usage.leaving;
  return out.str();
}

// What the last run left is counted.
void start(TestVolume& volume) {
  volume.start();
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume->room_on(0).usage.complete; }));
}

// The kernel forgets a name when it is told that it has gone; here at once.
InodeNumber store(TestVolume& volume, const std::string& name) {
  const InodeNumber inode = volume.store_file(kRootInode, name, kBytes);
  volume->forget(inode, 1);
  return inode;
}

// Stores `count` files and waits until the budget holds.
std::vector<InodeNumber> fill(TestVolume& volume, int count, const std::string& prefix = "f") {
  std::vector<InodeNumber> made;
  for (int i = 0; i < count; ++i) {
    made.push_back(store(volume, prefix + std::to_string(i)));
    // As the kernel does it for a writer of its own.
    TestVolume::wait_for([&] { return volume->room_on(0).room.bytes > 0; });
  }
  return made;
}

bool exists(TestVolume& volume, const std::string& name) { return volume.resolve(name).ok(); }

bool has_name(TestVolume& volume, const std::string& name) {
  return must(volume.catalog().find_dentry(kRootInode, name)).has_value();
}

bool refuses(TestVolume& volume) {
  const Result<Created> probe =
      volume->create(kRootInode, "probe", 0644, O_RDWR, TestVolume::kRoot);
  if (!probe.ok()) return probe.error().code == ENOSPC;
  volume->release(*probe->opened.file);
  volume->forget(probe->entry.inode, 1);
  must(volume->unlink(kRootInode, "probe"));
  return false;
}

TEST(Evictor, KeepsTheBudgetAndTheNewest) {
  PROMISE(4);
  TestVolume volume(small());
  start(volume);
  fill(volume, 100);
  EXPECT_TRUE(TestVolume::wait_for([&] {
    return used(volume) <= kBudget &&
           volume->drop_counts()[static_cast<std::size_t>(DropReason::kRoom)].files > 60;
  }));
  EXPECT_TRUE(exists(volume, "f99"));
  EXPECT_FALSE(exists(volume, "f0"));
  // It stops when there is headroom again: most of the budget is in use.
  EXPECT_GT(used(volume), kBudget / 2) << describe(volume);
}

TEST(Evictor, PassesOverWhatIsOpenLeasedOrKept) {
  PROMISE(3);
  TestVolume volume(small(std::chrono::hours{1}));
  const InodeNumber open = store(volume, "open");
  OpenFile& reader = volume.open(open, O_RDONLY);
  store(volume, "leased");
  ASSERT_TRUE(exists(volume, "leased"));
  store(volume, "crawled");
  // As runtimes load that open everything in one way.
  volume->release(volume.open(store(volume, "loaded"), O_RDWR));
  const Created kept = volume.create(kRootInode, "kept");
  volume.write(*kept.opened.file, kBytes);
  ASSERT_OK(volume->fsync(*kept.opened.file, false));
  volume.close(*kept.opened.file);
  start(volume);
  fill(volume, 100);
  EXPECT_TRUE(exists(volume, "open"));
  EXPECT_TRUE(exists(volume, "leased"));
  EXPECT_TRUE(exists(volume, "loaded"));
  EXPECT_TRUE(exists(volume, "kept"));
  EXPECT_FALSE(exists(volume, "crawled"));
  volume->release(reader);
}

// Well before a walk over all begins anew, which is a quarter of a second.
TEST(Evictor, WhatWasBusyForAMomentGoesNext) {
  TestVolume volume(small());
  start(volume);
  const Created made = volume.create(kRootInode, "busy");
  volume.write(*made.opened.file, kBytes);
  const InodePtr busy = made.opened.file->inode;
  volume.close(*made.opened.file);
  volume->forget(made.entry.inode, 1);
  for (int i = 0; i < 24; ++i) {
    TestVolume::let_pass(
        std::chrono::milliseconds(20));  // two stamps: it goes after those before it
    store(volume, "f" + std::to_string(i));
  }
  TestVolume::let_pass(std::chrono::milliseconds(1100));  // Until none of them is young.
  const auto has_headroom = [&] {
    const DeviceRoom seen = volume->room_on(0);
    return seen.room.bytes >= static_cast<std::int64_t>(seen.marks.headroom);
  };
  {
    const std::lock_guard somebody(busy->mutex);
    for (int i = 0; i < 12 && has_name(volume, "f0"); ++i) {
      store(volume, "g" + std::to_string(i));
      ASSERT_TRUE(TestVolume::wait_for(has_headroom));
    }
    ASSERT_FALSE(has_name(volume, "f0"));
  }
  for (int i = 0; i < 6; ++i) {
    store(volume, "h" + std::to_string(i));
    ASSERT_TRUE(TestVolume::wait_for(has_headroom));
    TestVolume::let_pass(std::chrono::milliseconds(25));
  }
  EXPECT_FALSE(has_name(volume, "busy"));
  EXPECT_TRUE(has_name(volume, "f23"));
}

TEST(Evictor, AnOpenFileThatIsUsedLateStays) {
  TestVolume volume(small());
  start(volume);
  fill(volume, 10, "early");
  for (int i = 0; i < 60; ++i) {
    store(volume, "f" + std::to_string(i));
    TestVolume::wait_for([&] { return volume->room_on(0).room.bytes > 0; });
    ASSERT_OK(volume.read_path("early3")) << i;
  }
  EXPECT_FALSE(exists(volume, "early2"));
  EXPECT_EQ(kBytes, must(volume.read_path("early3")));
}

// A close may wait for room for longer than a file counts as young, and a rename follows it. SGLang's name of one: it is in
// the order from its seal on, by the time of its last write.
TEST(Evictor, WhatWasClosedJustNowStaysHoweverLongItWasOpen) {
  // They stand unless the test moves them.
  const std::int64_t began = monotonic_now();
  const UnixNanos began_files = file_clock_now();
  const auto passed = std::make_shared<std::atomic<std::int64_t>>(0);
  TestVolumeOptions options = small();
  options.volume.clocks = {.monotonic = [=] { return began + *passed; },
                           .files = [=] { return began_files + *passed; }};
  TestVolume volume(options);
  start(volume);
  const std::string name =
      std::string(64, 'a') + "_model_0_1.bin.tmp.1.2." + std::string(32, '0');
  const Created made = volume.create(kRootInode, name);
  volume.write(*made.opened.file, kBytes);
  const auto pass = [&](std::chrono::milliseconds time) {
    *passed += std::chrono::nanoseconds(time).count();
  };
  // The kernel's times of the files that follow are long past by this clock: their closes alone are recent.
  pass(std::chrono::minutes{30});
  for (int i = 0; i < 60; ++i) {
    pass(std::chrono::milliseconds{50});
    fill(volume, 1, "g" + std::to_string(i) + "-");
  }
  pass(std::chrono::seconds{2});
  volume.close(*made.opened.file);
  int stored = 0;
  for (; stored < 20; ++stored) {
    pass(std::chrono::milliseconds{45});
    fill(volume, 1, "h" + std::to_string(stored));
    ASSERT_TRUE(has_name(volume, name)) << stored;
  }
  pass(std::chrono::seconds{1});
  // It goes in its turn.
  EXPECT_TRUE(TestVolume::wait_for([&] {
    fill(volume, 1, "i" + std::to_string(stored++));
    return !has_name(volume, name);
  }));
}

TEST(Evictor, SaysNoSpaceWhenNothingCanGoAndRecovers) {
  TestVolume volume(small());
  start(volume);
  std::vector<std::string> kept;
  int error = 0;
  for (int i = 0; i < 1000 && error == 0; ++i) {
    const std::string name = "kept" + std::to_string(i);
    const Result<Created> made =
        volume->create(kRootInode, name, 0644, O_RDWR, TestVolume::kRoot);
    if (!made.ok()) {
      error = made.error().code;
      break;
    }
    OpenFile& file = *made->opened.file;
    const auto data = std::as_bytes(std::span(kBytes.data(), kBytes.size()));
    const Result<std::size_t> put = volume->write(file, data, 0, TestVolume::kRoot);
    if (put.ok()) {
      ASSERT_OK(volume->fsync(file, false));
      volume.close(file);
      volume->forget(made->entry.inode, 1);
      kept.push_back(name);
    } else {
      error = put.error().code;
      volume->release(file);
    }
    // The evictor has looked: there is room, or it knows that there will be none.
    if (error == 0)
      TestVolume::wait_for(
          [&] { return volume->room_on(0).room.bytes > 0 || refuses(volume); });
  }
  EXPECT_EQ(ENOSPC, error);
  EXPECT_GE(kept.size(), kBudget / kFile - 1);
  const struct statvfs full = must(volume->statfs());
  EXPECT_LT(full.f_bavail * 4096, 2 * kFile);
  for (int i = 0; i < 20; ++i)
    ASSERT_OK(volume->unlink(kRootInode, kept[static_cast<std::size_t>(i)]));
  EXPECT_TRUE(TestVolume::wait_for([&] {
    const Result<Created> made =
        volume->create(kRootInode, "again", 0644, O_RDWR, TestVolume::kRoot);
    if (!made.ok()) return false;
    volume.close(*made->opened.file);
    volume->forget(made->entry.inode, 1);
    return true;
  }));
  EXPECT_TRUE(TestVolume::wait_for([&] {
    return must(volume->statfs()).f_bavail * 4096 > 4 * kFile;
  })) << describe(volume);
}

// Stores a file of 9/16 of the budget, and rewrites it with as much.
void rewrite_what_is_large(bool is_kept) {
  TestVolume volume(small());
  const InodeNumber inode =
      volume.store_file(kRootInode, "large", std::string(kBudget / 16 * 9, 'o'));
  volume.settle();
  start(volume);
  if (is_kept) must(volume->set_xattr(inode, kPolicyXattr, "keep", 0, TestVolume::kRoot));
  const ObjectId before = volume.record_of(inode).object;
  OpenFile& writer = volume.open(inode, O_WRONLY | O_TRUNC);
  EXPECT_EQ(before, volume.record_of(inode).previous_object);
  volume.write(writer, std::string(kBudget / 16 * 9, 'n'));
  const auto has_gone = [&] { return volume.record_of(inode).previous_object == kNoObject; };
  if (is_kept) {
    EXPECT_TRUE(TestVolume::wait_for([&] { return refuses(volume); })) << describe(volume);
    EXPECT_FALSE(has_gone());
  } else {
    EXPECT_TRUE(TestVolume::wait_for(has_gone)) << describe(volume);
    EXPECT_TRUE(TestVolume::wait_for([&] { return used(volume) < kBudget; }))
        << describe(volume);
    EXPECT_FALSE(refuses(volume));
  }
  volume.close(writer);
  EXPECT_EQ(std::string::npos, must(volume.read_path("large")).find_first_not_of('n'));
}

TEST(Evictor, WhatARewriteReplacesGoesFirst) { rewrite_what_is_large(false); }
TEST(Evictor, WhatTheRewriteOfAKeptFileReplacesStays) { rewrite_what_is_large(true); }

TEST(Evictor, WhatGoesWhileItIsSealedIsFreedThen) {
  TestVolume volume(small());
  start(volume);
  // A batch whose sync takes long: the sealer has its files in hand.
  volume.faults().slow_sync = true;
  for (std::uint64_t i = 0; i < kBudget / kFile; ++i) store(volume, "f" + std::to_string(i));
  EXPECT_TRUE(TestVolume::wait_for([&] { return volume->room_on(0).usage.leaving > 0; }));
  EXPECT_FALSE(refuses(volume)) << describe(volume);
  volume.faults().slow_sync = false;
  EXPECT_TRUE(TestVolume::wait_for([&] {
    return volume->room_on(0).usage.leaving == 0 && volume->room_on(0).room.bytes > 0;
  })) << describe(volume);
}

TEST(Evictor, CountsWhatTheLastRunLeft) {
  TestVolume volume(small());
  start(volume);
  fill(volume, 20);
  TestVolume::wait_for([&] { return volume->room_on(0).usage.settling == 0; });
  volume.stop_cleanly();
  volume.run();
  // Before the walk, by what that run has written down.
  EXPECT_FALSE(volume->room_on(0).usage.complete);
  EXPECT_EQ(static_cast<std::int64_t>(kBudget - 20 * kFile), volume->room_on(0).room.bytes);
  start(volume);
  EXPECT_EQ(20 * kFile, used(volume));
  EXPECT_EQ(20 * kFile, volume->room_on(0).usage.evictable);
  fill(volume, 60, "g");
  EXPECT_FALSE(exists(volume, "f0"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return used(volume) <= kBudget; }));
}

TEST(Evictor, AMissIsMadeAnewWhileItsEvictionIsUnderWay) {
  TestVolume volume(small());
  start(volume);
  for (int round = 0; round < 200; ++round) {
    const std::string name = "f" + std::to_string(round % 40);
    const Result<Entry> found = volume->lookup(kRootInode, name, TestVolume::kRoot);
    if (found.ok()) {
      volume->forget(found->inode, 1);
      const InodeNumber other =
          volume.store_file(kRootInode, "x" + std::to_string(round), kBytes);
      volume.rewrite(other, kBytes);
      volume->forget(other, 1);
      continue;
    }
    ASSERT_EQ(ENOENT, found.error().code);
    const Result<Created> made =
        volume->create(kRootInode, name, 0644, O_RDWR, TestVolume::kRoot);
    ASSERT_OK(made) << name;
    volume.write(*made->opened.file, kBytes);
    volume.close(*made->opened.file);
    volume->forget(made->entry.inode, 1);
  }
}

// Their unlinks reached the disk, and the records of that did not.
TEST(Evictor, CountsWhatAMachinesCrashHasLeft) {
  TestVolume volume(small());
  start(volume);
  for (int i = 0; i < 10; ++i) store(volume, "f" + std::to_string(i));
  volume.stop_cleanly();
  volume.run();
  std::vector<std::string> gone;
  for (int i = 0; i < 4; ++i)
    gone.push_back(volume.backing_path_of(must(volume.resolve("f" + std::to_string(i)))));
  volume.pull_plug();
  for (const std::string& path : gone) ASSERT_EQ(0, ::unlink(path.c_str()));
  volume.run();
  start(volume);
  EXPECT_TRUE(TestVolume::wait_for([&] { return used(volume) == 6 * kFile; }))
      << describe(volume);
  EXPECT_FALSE(exists(volume, "f3"));
  EXPECT_TRUE(exists(volume, "f4"));
}

TEST(Evictor, DoesNotCountWhatIsLost) {
  TestVolume volume(small());
  start(volume);
  const InodeNumber inode = store(volume, "lost");
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return volume.state_of(inode) == DataState::kSealed; }));
  ASSERT_EQ(0, ::unlink(volume.backing_path_of(inode).c_str()));
  EXPECT_ERROR(ENOENT, volume.resolve("lost"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return used(volume) == 0; })) << describe(volume);
}

// As a lookup that asks a pool leaves it, so long ago.
void put_remote(TestVolume& volume, const std::string& name, std::chrono::hours ago) {
  Catalog& catalog = volume.catalog();
  const InodeNumber number = must(catalog.next_id());
  const UnixNanos found = file_clock_now() - std::chrono::nanoseconds{ago}.count();
  InodeRecord record;
  record.mode = S_IFREG | 0644;
  record.nlink = 1;
  record.state = DataState::kRemote;
  record.stamp = {.size = kFile, .mtime = found, .ctime = found};
  Edit edit;
  edit.put_inode(number, record);
  edit.put_dentry(kRootInode, name,
                  {.inode = number, .type = DT_REG, .cookie = must(catalog.next_id())});
  edit.put_pool_copy(number,
                     {.fileid = number, .path_hash = number, .size = kFile, .mtime = found});
  must(catalog.commit(std::move(edit)));
}
// Its pool is not given: who replaces it does without.
TEST(Evictor, TheNameOfWhatIsOnThePoolAloneIsNotInTheWay) {
  TestVolume volume(small());
  put_remote(volume, "f", std::chrono::hours(1));
  const InodeNumber inode = must(volume->lookup(kRootInode, "f", TestVolume::kRoot)).inode;
  EXPECT_ERROR(ENOENT, volume->open(inode, O_RDONLY, TestVolume::kRoot));
  EXPECT_TRUE(has_name(volume, "f"));
  // The kernel looks it up once more then.
  EXPECT_ERROR(ESTALE, volume->open(inode, O_WRONLY | O_TRUNC, TestVolume::kRoot));
  EXPECT_FALSE(has_name(volume, "f"));
  volume.store_file(kRootInode, "f", "new");
  EXPECT_EQ("new", must(volume.read_path("f")));
}

TEST(Evictor, TheNameOfWhatIsOnThePoolAloneGoesInItsTurn) {
  TestVolume volume(small());
  put_remote(volume, "remote", std::chrono::hours{1});
  start(volume);
  fill(volume, 10);
  EXPECT_TRUE(has_name(volume, "remote")) << "there is room";
  fill(volume, 60, "g");
  EXPECT_TRUE(TestVolume::wait_for([&] { return !has_name(volume, "remote"); }));
  EXPECT_TRUE(has_name(volume, "g59"));
}

TEST(Evictor, TheNameOfWhatIsOnThePoolAloneGoesAfterADay) {
  TestVolume volume(small());
  put_remote(volume, "old", std::chrono::hours{48});
  put_remote(volume, "young", std::chrono::hours{1});
  start(volume);
  EXPECT_TRUE(TestVolume::wait_for([&] { return !has_name(volume, "old"); }));
  EXPECT_TRUE(has_name(volume, "young"));
}

TEST(Evictor, WhatIsUnpinnedGoesSoon) {
  TestVolume volume(small());
  start(volume);
  const InodeNumber pinned =
      must(volume->make_node(kRootInode, "pinned", S_IFDIR | 0755, 0, TestVolume::kRoot)).inode;
  must(volume->set_xattr(pinned, kPolicyXattr, "pin", 0, TestVolume::kRoot));
  bool is_full = false;
  for (int i = 0; i < 1000 && !is_full; ++i) {
    const Result<Created> made =
        volume->create(pinned, std::to_string(i), 0644, O_RDWR, TestVolume::kRoot);
    if (!made.ok()) break;
    const auto data = std::as_bytes(std::span(kBytes.data(), kBytes.size()));
    // The last one may find no room.
    static_cast<void>(volume->write(*made->opened.file, data, 0, TestVolume::kRoot).ok());
    static_cast<void>(volume->flush(*made->opened.file, TestVolume::kRoot).ok());
    volume->release(*made->opened.file);
    volume->forget(made->entry.inode, 1);
    TestVolume::wait_for([&] {
      is_full = refuses(volume);
      return is_full || volume->room_on(0).room.bytes > 0;
    });
  }
  ASSERT_TRUE(TestVolume::wait_for([&] { return refuses(volume); }));
  const auto told = std::chrono::steady_clock::now();
  must(volume->set_xattr(pinned, kPolicyXattr, "cache", 0, TestVolume::kRoot));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !refuses(volume); }));
  // What is found to be kept was passed over for a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - told, std::chrono::seconds(30));
}

// Two ranks' files of each block, in directories of their own, as vLLM's filesystem tier has them.
class EvictorOfRanks : public ::testing::Test {
 protected:
  explicit EvictorOfRanks(const TestVolumeOptions& options = small()) : volume_(options) {}
  void SetUp() override {
    start(volume_);
    for (const char* rank : {"model_1a2b3c4d5e6f_r0", "model_1a2b3c4d5e6f_r1"})
      add_rank(kRootInode, rank);
  }
  void add_rank(InodeNumber at, const char* rank) {
    for (const char* name : {rank, "abc", "de_g0"})
      at = must(volume_->make_node(at, name, S_IFDIR | 0755, 0, TestVolume::kRoot)).inode;
    ranks_.push_back(at);
  }
  static std::string name(int block) {
    char text[65];
    std::snprintf(text, sizeof text, "abcde%059d", block);
    return std::string(text) + ".bin";
  }
  void store(std::size_t rank, int block) {
    const InodeNumber inode = volume_.store_file(ranks_[rank], name(block), kBytes);
    volume_->forget(inode, 1);
    TestVolume::wait_for([&] { return volume_->room_on(0).room.bytes > 0; });
  }
  // A burst of calls ends when there were none for 100 ms.
  static void end_burst() { TestVolume::let_pass(std::chrono::milliseconds{300}); }
  // Not a lookup: that would be a use.
  bool has(std::size_t rank, int block) {
    return must(volume_.catalog().find_dentry(ranks_[rank], name(block))).has_value();
  }

  TestVolume volume_;
  std::vector<InodeNumber> ranks_;
};

TEST_F(EvictorOfRanks, TheFilesOfABlockGoTogether) {
  constexpr int kBlocks = 60;
  // The second rank stores all of its own later.
  for (int block = 0; block < 10; ++block) store(0, block);
  for (int block = 0; block < 10; ++block) store(1, block);
  for (int block = 10; block < kBlocks; ++block) {
    store(0, block);
    store(1, block);
  }
  ASSERT_TRUE(TestVolume::wait_for([&] { return used(volume_) <= kBudget; }));
  // Room is made ahead of the next store: a block's second file may be going right now.
  for (int block = 0; block < kBlocks; ++block) {
    EXPECT_TRUE(TestVolume::wait_for([&] { return has(0, block) == has(1, block); })) << block;
  }
  int whole = 0;
  for (int block = 0; block < kBlocks; ++block) {
    if (has(0, block)) ++whole;
  }
  EXPECT_GT(whole, 5);
  EXPECT_LT(whole, 20);
  EXPECT_TRUE(has(0, kBlocks - 1));
}

TEST_F(EvictorOfRanks, ATemporaryThatNobodyRenamedGoesInItsTurn) {
  const std::string left = name(0) + "_4711.tmp";  // As vLLM names it.
  const InodeNumber inode = volume_.store_file(ranks_[0], left, kBytes);
  volume_->forget(inode, 1);
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return volume_.state_of(inode) == DataState::kSealed; }));
  for (int block = 1; block < 60; ++block) store(0, block);
  EXPECT_FALSE(must(volume_.catalog().find_dentry(ranks_[0], left)).has_value());
  EXPECT_TRUE(has(0, 59));
}

TEST_F(EvictorOfRanks, WhatWasABlockGoesByAnotherName) {
  store(0, 0);
  const auto dentry = must(volume_.catalog().find_dentry(ranks_[0], name(0)));
  ASSERT_TRUE(dentry);
  must(volume_->link(dentry->inode, kRootInode, "other", TestVolume::kRoot));
  volume_->forget(dentry->inode, 1);
  must(volume_->unlink(ranks_[0], name(0)));
  for (int block = 1; block < 60; ++block) store(0, block);
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return !must(volume_.catalog().find_dentry(kRootInode, "other")).has_value(); }));
  EXPECT_TRUE(has(0, 59));
}

TEST_F(EvictorOfRanks, OtherFilesGoInOrderWithTheBlocks) {
  // What is stored within a hundredth of a second goes in any order.
  const auto pass_time = [] { TestVolume::let_pass(std::chrono::milliseconds{100}); };
  store(0, 0);
  pass_time();
  volume_->forget(volume_.store_file(kRootInode, "index", kBytes), 1);
  pass_time();
  store(0, 1);
  const auto has_index = [&] {
    return must(volume_.catalog().find_dentry(kRootInode, "index")).has_value();
  };
  for (int block = 2; block < 120 && has_index(); ++block) {
    ASSERT_TRUE(has(0, 1) || !has_index()) << "a younger block went before it";
    store(0, block);
  }
  EXPECT_FALSE(has_index());
  EXPECT_FALSE(has(0, 0)) << "an older block";
}

TEST_F(EvictorOfRanks, OneThatIsUsedKeepsTheOthers) {
  constexpr int kUsed = 10;
  for (int block = 0; block <= kUsed; ++block) {
    store(0, block);
    store(1, block);
  }
  end_burst();
  // The first rank's file alone is looked up.
  volume_->forget(must(volume_->lookup(ranks_[0], name(kUsed), TestVolume::kRoot)).inode, 1);
  end_burst();
  // Of one burst the youngest go first: the second rank's file would be the very first.
  for (int block = 100; block < 180 && has(0, kUsed - 1); ++block) store(0, block);
  EXPECT_FALSE(has(0, kUsed - 1));
  EXPECT_FALSE(has(1, kUsed - 1));
  EXPECT_TRUE(has(0, kUsed));
  EXPECT_TRUE(has(1, kUsed));
}

TEST_F(EvictorOfRanks, AnotherDeploymentsFilesGoInTheirOwnTurn) {
  // One configured otherwise, and one elsewhere: they answer the same prompts.
  add_rank(kRootInode, "model_aaaaaaaaaaaa_r0");
  add_rank(
      must(volume_->make_node(kRootInode, "old", S_IFDIR | 0755, 0, TestVolume::kRoot)).inode,
      "model_1a2b3c4d5e6f_r0");
  for (std::size_t of = 0; of < ranks_.size(); ++of) store(of, 0);
  end_burst();
  for (int block = 1; block < 6; ++block) store(0, block);
  end_burst();
  volume_->forget(must(volume_->lookup(ranks_[0], name(0), TestVolume::kRoot)).inode, 1);
  end_burst();
  for (int block = 100; block < 180 && has(0, 1); ++block) store(0, block);
  EXPECT_FALSE(has(0, 1));
  EXPECT_TRUE(has(0, 0));
  EXPECT_TRUE(has(1, 0));
  EXPECT_FALSE(has(2, 0));
  EXPECT_FALSE(has(3, 0));
}

class EvictorOfLeasedRanks : public EvictorOfRanks {
 protected:
  EvictorOfLeasedRanks() : EvictorOfRanks(small(std::chrono::hours{1})) {}
};

TEST_F(EvictorOfLeasedRanks, WhatOneWasFoundWithStays) {
  for (int block = 0; block < 3; ++block) {
    store(0, block);
    store(1, block);
  }
  // Whoever finds one of them will load both.
  volume_->forget(must(volume_->lookup(ranks_[1], name(0), TestVolume::kRoot)).inode, 1);
  for (int block = 100; block < 200; ++block) store(0, block);
  EXPECT_FALSE(has(0, 1));
  EXPECT_FALSE(has(1, 1));
  EXPECT_FALSE(has(0, 120));
  EXPECT_TRUE(has(0, 0));
  EXPECT_TRUE(has(1, 0));
}

}  // namespace
}  // namespace kvcachefs::testing
