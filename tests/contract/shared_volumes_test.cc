// Several mounts on one pool, over each kind of pool.
#include "tests/servers/shared_volumes.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "backend/base/clock.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_service.h"
#include "fs/explain/evict.h"
#include "fs/explain/explain.h"
#include "fs/flush.h"
#include "fs/pool/damaged_files.h"
#include "fs/pool/looked_again.h"
#include "tests/fakes/promise.h"
#include "tests/fakes/test_volume.h"
#include "tests/servers/pool_places.h"
#include "tests/servers/volume_on_pool.h"

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;
using testing::block_name;
using testing::kMissing;
using testing::must;
using testing::Server;
using testing::SharedVolumes;
using testing::TestVolume;

TEST_P(SharedVolumes, WhatOneStoresAllFind) {
  const std::string bytes(3'000'000, 'x');
  EXPECT_FALSE(b_.finds("d"));
  const InodeNumber d = a_->mkdir(kRootInode, "d", 0750);
  SetAttributes owner;
  owner.uid = 1000;
  owner.gid = 1001;
  must((*a_)->set_attributes(d, owner, nullptr, TestVolume::kRoot));
  const InodeNumber stored = a_->store_file(d, "f", "f" + bytes);
  owner.mode = 0600;
  must((*a_)->set_attributes(stored, owner, nullptr, TestVolume::kRoot));
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("d/f"); }));
  EXPECT_EQ("f" + bytes, on_pool("d/f"));

  const struct stat found = b_->stat_of(must(b_->resolve("d/f")));
  EXPECT_EQ(S_IFREG | 0600U, found.st_mode);
  EXPECT_EQ(1000U, found.st_uid);
  EXPECT_EQ(1001U, found.st_gid);
  EXPECT_EQ(3'000'001, found.st_size);
  EXPECT_EQ(DataState::kRemote, b_->state_of(must(b_->resolve("d/f"))));
  const InodeNumber there = must(b_->resolve("d/f"));
  EXPECT_EQ(OpenCost::kWaitsForPool, must((*b_)->open_cost(there, O_RDONLY)));
  // TestVolume reads a MiB.
  EXPECT_EQ(("f" + bytes).substr(0, 1 << 20), b_.read("d/f"));
  EXPECT_EQ(OpenCost::kQuick, must((*b_)->open_cost(there, O_RDONLY)));
  EXPECT_EQ(there, must(b_->resolve("d/f")));
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_->state_of(there) == DataState::kSealed; }));
  EXPECT_TRUE(TestVolume::wait_for([&] {
    const auto found_d = b_->resolve("d");
    return found_d.ok() && b_->stat_of(*found_d).st_uid == 1000U;
  }));
  EXPECT_EQ(1U, b_.counts().loaded);
  // What came from there does not go there again.
  EXPECT_EQ(0U, b_.counts().published);
}

// A runtime that asks for a block, makes the directories for it, and renames it to a name that the kernel looks up.
TEST_P(SharedVolumes, WhatIsBelowADirectoryThatIsNotThereIsNotAskedFor) {
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_FALSE(b_.finds("d"));
  const InodeNumber d = b_->mkdir(kRootInode, "d");
  const InodeNumber e = b_->mkdir(d, "e");
  const std::uint64_t asked = b_.counts().asked;
  EXPECT_EQ(1U, asked);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(b_.finds("d/e/" + block_name(i)));
  // A node whose machine kept its heart waiting asks for either directory again, but not before
  // this time.
  const auto again = (std::chrono::steady_clock::now() - begun) / PoolService::kMissUnfollowed;
  EXPECT_LE(b_.counts().asked, asked + 2 * static_cast<std::uint64_t>(again));

  // Others may make it there, and put something in it, or this node itself: then it is asked for.
  const InodeNumber other = a_->mkdir(a_->mkdir(kRootInode, "d"), "e");
  a_->store_file(other, block_name(1), "bytes");
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("d/e/" + block_name(1)) == "bytes"; }));
  b_->store_file(e, block_name(2), "more");
  EXPECT_TRUE(TestVolume::wait_for([&] { return a_.read("d/e/" + block_name(2)) == "more"; }));
  a_->store_file(other, block_name(3), "after it");
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return b_.read("d/e/" + block_name(3)) == "after it"; }));
}

TEST_P(SharedVolumes, WhatIsTakenAwayIsGoneEverywhere) {
  a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.read("f") == "bytes"; }));
  EXPECT_OK((*a_)->unlink(kRootInode, "f"));
  EXPECT_FALSE(a_.finds("f"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !b_.finds("f"); }));
  EXPECT_FALSE(is_on_pool("f"));
  EXPECT_FALSE(a_.finds("f"));
  // The name is free for another one.
  b_->store_file(kRootInode, "f", "anew");
  EXPECT_TRUE(TestVolume::wait_for([&] { return a_.read("f") == "anew"; }));
}

TEST_P(SharedVolumes, FurtherLinksStayWhereTheBytesAre) {
  const InodeNumber inode = a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.read("f") == "bytes"; }));
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.counts().to_publish == 0; }));
  // One that comes before it, and one that comes after.
  for (const char* name : {"e", "g"}) must((*a_)->link(inode, kRootInode, name, kRoot));
  EXPECT_OK((*b_)->unlink(kRootInode, "f"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !a_.finds("f"); }));
  EXPECT_EQ("bytes", a_.read("e"));
  EXPECT_EQ("bytes", a_.read("g"));
  EXPECT_FALSE(must(a_->catalog().find_pool_copy(inode)));
}

// As an application that makes a file under a temporary name, and links it.
TEST_P(SharedVolumes, WhatIsLinkedFromATemporaryIsPublished) {
  const InodeNumber inode = a_->store_file(kRootInode, "f.tmp", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return a_->state_of(inode) == DataState::kSealed && a_.counts().to_publish == 0;
  }));
  must((*a_)->link(inode, kRootInode, "f", kRoot));
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("f") == "bytes"; }));
  EXPECT_OK((*a_)->unlink(kRootInode, "f.tmp"));
  EXPECT_FALSE(is_on_pool("f.tmp"));
}

// As the lists of a session that are links to blocks.
TEST_P(SharedVolumes, WhatIsOnThePoolAloneIsReadByALinkOfThisNode) {
  const InodeNumber early = b_->mkdir(kRootInode, "early");
  a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool("f") && b_.finds("f"); }));
  const InodeNumber inode = must(b_->resolve("f"));
  must((*b_)->link(inode, early, "link", kRoot));
  EXPECT_EQ("bytes", b_.read("early/link"));
  EXPECT_EQ("bytes", b_.read("f"));
}

// The pool has the first version. Without the second one here, that one would be found in its place.
TEST_P(SharedVolumes, WhatReplacesAFileOfThePoolIsNotEvictedBeforeItIsThere) {
  a_->store_file(kRootInode, "f", "one");
  a_->store_file(kRootInode, block_name(1), "bytes");
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return is_on_pool("f") && is_on_pool(block_name(1)); }));
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.counts().to_publish == 0; }));
  a_.lose_pool();
  a_->store_file(kRootInode, "f.tmp", "two");
  EXPECT_OK((*a_)->rename(kRootInode, "f.tmp", kRootInode, "f", 0, kRoot));
  a_->store_file(kRootInode, "new", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return (*a_)->counts().unsealed == 0; }));
  const EvictPage left = must((*a_)->evict("f"));
  EXPECT_EQ(0U, left.files);
  EXPECT_EQ(1U, left.left[static_cast<std::size_t>(Obstacle::kQueued)]);
  EXPECT_EQ(Obstacle::kQueued, must((*a_)->explain("f")).obstacle);
  EXPECT_EQ("two", a_.read("f"));
  // The pool may have one of that name, for all that is known. Of a block one is as good as the other.
  EXPECT_EQ(0U, must((*a_)->evict("new")).files);
  EXPECT_EQ(1U, must((*a_)->evict(block_name(1))).files);
  a_.stop();
  a_.run();
  ASSERT_TRUE(TestVolume::wait_for([&] { return on_pool("f") == "two"; }));
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.counts().to_publish == 0; }));
  EXPECT_EQ(1U, must((*a_)->evict("f")).files);
  EXPECT_TRUE(TestVolume::wait_for([&] { return a_.read("f") == "two"; }));
}

// What is in it there is not seen here before it is looked up.
TEST_P(SharedVolumes, ADirectoryOfThePoolIsNotReplaced) {
  b_->store_file(b_->mkdir(kRootInode, "d"), "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool("d/f") && a_.finds("d"); }));
  a_->mkdir(kRootInode, "new.tmp");
  EXPECT_ERROR(EXDEV, (*a_)->rename(kRootInode, "new.tmp", kRootInode, "d", 0, kRoot));
  EXPECT_EQ("bytes", a_.read("d/f"));
}

TEST_P(SharedVolumes, ATombstoneHidesWhatThePoolStillHas) {
  a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool("f"); }));
  ASSERT_TRUE(TestVolume::wait_for(
      [&] { return must(a_->catalog().find_pool_copy(must(a_->resolve("f")))).has_value(); }));
  const auto copy = must(a_->catalog().find_pool_copy(must(a_->resolve("f"))));
  Edit edit;
  edit.put_tombstone("g", {.fileid = copy->fileid});
  must(a_->catalog().commit(std::move(edit)));
  std::filesystem::create_hard_link(below("f"), below("g"));
  EXPECT_FALSE(a_.finds("g"));
}

TEST_P(SharedVolumes, ARenamedFileIsPublishedUnderItsNewName) {
  const InodeNumber f = a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("f"); }));
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return must(a_->catalog().find_pool_copy(f)).has_value(); }));
  must((*a_)->rename(kRootInode, "f", kRootInode, "g", 0));
  EXPECT_FALSE(a_.finds("f"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("g") == "bytes" && !b_.finds("f"); }));
  EXPECT_EQ("bytes", a_.read("g"));
  // Bytes that are not here, and directories that others use, are not moved: tools copy.
  a_->store_file(a_->mkdir(kRootInode, "d"), "h", "more");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("d/h"); }));
  EXPECT_EQ(EXDEV, (*b_)->rename(must(b_->resolve("d")), "h", kRootInode, "h", 0).error().code);
  EXPECT_EQ(EXDEV, (*b_)->rename(kRootInode, "d", kRootInode, "e", 0).error().code);
  EXPECT_EQ("more", b_.read("d/h"));
}

TEST_P(SharedVolumes, OfBlocksTheFirstStays) {
  a_->store_file(kRootInode, block_name(1), "first");
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool(block_name(1)); }));
  // Here nobody has looked it up: the runtime was sure that it had to compute it.
  b_->store_file(kRootInode, block_name(1), "other");
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.counts().duplicates == 1; }));
  EXPECT_EQ("first", on_pool(block_name(1)));
  EXPECT_EQ("first", a_.read(block_name(1)));
  EXPECT_EQ(0U, b_.counts().published);
}

TEST_P(SharedVolumes, OfOtherNamesTheLastStays) {
  PROMISE(5);
  a_->store_file(kRootInode, "config.json", "first");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.read("config.json") == "first"; }));
  const Created made = a_->create(kRootInode, "config.json.tmp");
  a_->write(*made.opened.file, "second");
  a_->close(*made.opened.file);
  must((*a_)->rename(kRootInode, "config.json.tmp", kRootInode, "config.json", 0));
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("config.json") == "second"; }));
  EXPECT_EQ("second", on_pool("config.json"));
  EXPECT_EQ("second", a_.read("config.json"));
}

TEST_P(SharedVolumes, WhatIsStoredAgainAndTakenAwayIsGone) {
  const InodeNumber first = a_->store_file(kRootInode, block_name(1), "bytes");
  ASSERT_TRUE(TestVolume::wait_for(
      [&] { return must(a_->catalog().find_pool_copy(first)).has_value(); }));
  // Before the second one is published; what it would have taken the place of is known.
  a_->store_file(kRootInode, "second.tmp", "bytes");
  must((*a_)->rename(kRootInode, "second.tmp", kRootInode, block_name(1), 0));
  must((*a_)->unlink(kRootInode, block_name(1)));
  EXPECT_FALSE(a_.finds(block_name(1)));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !is_on_pool(block_name(1)); }));
  EXPECT_FALSE(a_.finds(block_name(1)));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !b_.finds(block_name(1)); }));
}

TEST_P(SharedVolumes, EachReplacementIsPublished) {
  // A rename finds the file before its seal, while it is sealed, and sealed.
  for (int i = 0; i < 30; ++i) {
    const std::string text = "version " + std::to_string(i);
    const InodeNumber stored = a_->store_file(kRootInode, "config.json.tmp", text);
    const auto is_sealed = [&] {
      must((*a_)->flush("", FlushPoint{}));  // No end of a burst is waited for.
      return a_->state_of(stored) == DataState::kSealed;
    };
    if (i % 3 == 1) static_cast<void>(is_sealed());
    if (i % 6 == 1) {
      ASSERT_TRUE(TestVolume::wait_for(is_sealed)) << i;
    }
    must((*a_)->rename(kRootInode, "config.json.tmp", kRootInode, "config.json", 0));
    if (i % 5 == 4) {
      EXPECT_TRUE(TestVolume::wait_for([&] { return on_pool("config.json") == text; })) << i;
    }
  }
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("config.json") == "version 29"; }));
}

TEST_P(SharedVolumes, WhatIsEvictedOnThePoolStaysWhereItIs) {
  const InodeNumber f = a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return must(a_->catalog().find_pool_copy(f)).has_value(); }));
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("f"); }));
  const PoolCopy copy = *must(a_->catalog().find_pool_copy(f));
  // A third node evicts it.
  Server c(*place_, 3);
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.nodes() == 3 && b_.nodes() == 3; }));
  std::filesystem::remove(below("f"));
  c.tell({.change = PoolChange::kEvicted,
          .path_hash = copy.path_hash,
          .fileid = copy.fileid,
          .size = copy.size});
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return !must(a_->catalog().find_pool_copy(f)).has_value(); }));
  EXPECT_EQ("bytes", a_.read("f"));
  // Its bytes were not there.
  EXPECT_TRUE(TestVolume::wait_for([&] { return !b_.finds("f"); }));
  c.stop();
}

TEST_P(SharedVolumes, WhatWasMissedIsAskedFor) {
  a_->store_file(kRootInode, "config.json", "first");
  a_->store_file(kRootInode, block_name(1), "block");
  a_->store_file(kRootInode, "gone", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return b_.read("config.json") == "first" && b_.read(block_name(1)) == "block" &&
           b_.read("gone") == "bytes";
  }));
  b_.stop();
  a_->rewrite(must(a_->resolve("config.json")), "second");
  EXPECT_OK((*a_)->unlink(kRootInode, "gone"));
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return on_pool("config.json") == "second" && !is_on_pool("gone"); }));
  b_.run();
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.is_joined(); }));
  EXPECT_EQ("second", b_.read("config.json"));
  EXPECT_EQ(kMissing, b_.read("gone"));
  // The bytes of a block are here, and right.
  EXPECT_EQ("block", b_.read(block_name(1)));
}

// By whom nobody tells of it. Who opens what was there before gets the new one, as the kernel looks again for an ESTALE.
TEST_P(SharedVolumes, WhoOpensWhatIsReplacedJustThenIsToldToLookAgain) {
  put_on_pool("f", "one");
  put_on_pool("g", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("f") && b_.finds("g"); }));
  const InodeNumber f = must(b_->resolve("f"));
  const InodeNumber g = must(b_->resolve("g"));
  put_on_pool("f.new", "another");
  std::filesystem::rename(below("f.new"), below("f"));
  std::filesystem::remove(below("g"));
  EXPECT_ERROR(ESTALE, (*b_)->open(f, O_RDONLY, TestVolume::kRoot));
  EXPECT_EQ("another", b_.read("f"));
  const Result<Opened> gone = (*b_)->open(g, O_RDONLY, TestVolume::kRoot);
  ASSERT_FALSE(gone.ok());
  EXPECT_TRUE(gone.error().code == ENOENT || gone.error().code == ESTALE);
  EXPECT_FALSE(b_.finds("g"));

  // Again within a while it is a miss. A machine too slow for that proves nothing: another name.
  const auto open_replaced = [&](const std::string& name) {
    EXPECT_TRUE(TestVolume::wait_for([&] { return b_.finds(name); }));
    const InodeNumber inode = must(b_->resolve(name));
    put_on_pool(name + ".new", "another");
    std::filesystem::rename(below(name + ".new"), below(name));
    const Result<Opened> opened = (*b_)->open(inode, O_RDONLY, TestVolume::kRoot);
    return opened.ok() ? 0 : opened.error().code;
  };
  bool was_in_time = false;
  for (int i = 0; i < 5 && !was_in_time; ++i) {
    const std::string name = "h" + std::to_string(i);
    put_on_pool(name, "one");
    const auto began = monotonic_now();
    EXPECT_EQ(ESTALE, open_replaced(name));
    const int second = open_replaced(name);
    was_in_time = monotonic_now() - began < LookedAgain::kFor;
    if (was_in_time) {
      EXPECT_EQ(ENOENT, second);
    }
  }
  EXPECT_TRUE(was_in_time) << "the machine was too busy";
}

TEST_P(SharedVolumes, WhatIsToBeKeptOutlivesThePool) {
  const InodeNumber f = a_->store_file(kRootInode, "f", "bytes");
  must((*a_)->set_xattr(f, "user.kvcachefs.policy", "keep", 0, TestVolume::kRoot));
  a_->store_file(kRootInode, "g", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool("f") && is_on_pool("g"); }));
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return a_.counts().to_publish == 0 && is_on_pool("g"); }));
  a_.stop();
  std::filesystem::remove(below("f"));
  std::filesystem::remove(below("g"));
  a_.run();
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.is_joined(); }));
  EXPECT_EQ(kMissing, a_.read("g"));
  EXPECT_EQ("bytes", a_.read("f"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return on_pool("f") == "bytes"; }));
}

// The evictors of the pool go by what its records say, whatever a directory was told after they were written.
TEST_P(SharedVolumes, WhatIsToldToBeKeptIsKeptOnThePoolToo) {
  const auto copy_of = [&](InodeNumber inode) {
    return must(a_->catalog().find_pool_copy(inode));
  };
  const auto is_kept = [&](InodeNumber inode) {
    const auto copy = copy_of(inode);
    if (!copy) return false;
    const auto sums = decode_pool_sums(on_pool(pool_sums_path(copy->fileid)));
    return sums.ok() && sums->keep;
  };
  const auto set_policy = [&](InodeNumber inode, const std::string& policy) {
    must((*a_)->set_xattr(inode, "user.kvcachefs.policy", policy, 0, TestVolume::kRoot));
  };
  const InodeNumber d = a_->mkdir(kRootInode, "d");
  const InodeNumber here = a_->store_file(d, block_name(1), "block 1");
  a_->store_file(d, block_name(2), "block 2");
  const InodeNumber alone = a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return a_.counts().to_publish == 0 && copy_of(here) && copy_of(alone) &&
           b_.finds("d/" + block_name(2));
  }));
  // Known again by its name on the pool.
  ASSERT_EQ(1U, must((*a_)->evict("d/" + block_name(2))).files);
  const InodeNumber there = must(a_->resolve("d/" + block_name(2)));
  EXPECT_FALSE(is_kept(here) || is_kept(there) || is_kept(alone));
  set_policy(d, "keep");
  set_policy(alone, "pin");
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return is_kept(here) && is_kept(there) && is_kept(alone); }));
  // What others have stored there is known from the first lookup on.
  b_->store_file(must(b_->resolve("d")), block_name(3), "block 3");
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.finds("d/" + block_name(3)); }));
  const InodeNumber theirs = must(a_->resolve("d/" + block_name(3)));
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_kept(theirs); }));

  a_.stop();
  a_.run();
  set_policy(d, "cache");
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return !is_kept(here) && !is_kept(there) && !is_kept(theirs); }));
  EXPECT_TRUE(is_kept(alone));
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return must(a_->catalog().list_owner_changes("", 10)).empty(); }));
  EXPECT_EQ("block 2", a_.read("d/" + block_name(2)));
  EXPECT_EQ("block 3", b_.read("d/" + block_name(3)));
}

TEST_P(SharedVolumes, BlocksThatAreLookedUpCome) {
  for (int i = 0; i < 20; ++i) a_->store_file(kRootInode, block_name(i), std::to_string(i));
  a_->store_file(kRootInode, "config.json", "{}");
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.counts().published == 21; }));
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(TestVolume::wait_for([&] { return b_.finds(block_name(i)); }));
  EXPECT_TRUE(b_.finds("config.json"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.counts().loaded == 20; }));
  EXPECT_EQ("7", b_.read(block_name(7)));
  EXPECT_EQ(20U, b_.counts().loaded);
  EXPECT_EQ(DataState::kRemote, b_->state_of(must(b_->resolve("config.json"))));
}

TEST_P(SharedVolumes, TemporariesStayWhereTheyAre) {
  a_->store_file(kRootInode, block_name(1) + ".tmp", "a's");
  b_->store_file(kRootInode, block_name(1) + ".tmp", "b's");
  a_->store_file(kRootInode, "after", "");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("after"); }));
  EXPECT_FALSE(is_on_pool(block_name(1) + ".tmp"));
  EXPECT_EQ("a's", a_.read(block_name(1) + ".tmp"));
  EXPECT_EQ("b's", b_.read(block_name(1) + ".tmp"));
}

// Both made it; what one has put there cannot be renamed by the other.
TEST_P(SharedVolumes, ADirectoryThatIsOnThePoolByNowIsNotRenamed) {
  const InodeNumber mine = b_->mkdir(kRootInode, "d");
  b_->mkdir(mine, "p");
  b_->mkdir(kRootInode, "own");
  a_->store_file(a_->mkdir(a_->mkdir(kRootInode, "d"), "p"), "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.read("d/p/f") == "bytes"; }));
  const auto rename = [&](InodeNumber from, const std::string& name) {
    return (*b_)->rename(from, name, kRootInode, "renamed", 0, TestVolume::kRoot);
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_ERROR(EXDEV, rename(kRootInode, "d"));
    EXPECT_ERROR(EXDEV, rename(mine, "p"));
    EXPECT_TRUE(b_.finds("d/p"));
  }
  EXPECT_EQ("bytes", a_.read("d/p/f"));
  EXPECT_FALSE(b_.finds("own/nothing"));
  EXPECT_OK(rename(kRootInode, "own"));
}

// Bytes that are as they were, and whose record says so, are put there again all the same.
TEST_P(SharedVolumes, ADamagedNameIsMendedByWhoStoresTheSame) {
  const std::string bytes(400'000, 'x');
  a_->store_file(kRootInode, "f", bytes);
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.counts().published == 1; }));
  testing::damage_unseen(below("f"), 300'000);
  a_->store_file(kRootInode, "f.tmp", bytes);
  EXPECT_OK((*a_)->rename(kRootInode, "f.tmp", kRootInode, "f", 0, TestVolume::kRoot));
  EXPECT_TRUE(TestVolume::wait_for([&] { return on_pool("f") == bytes; }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("f") == bytes; }));
}

TEST_P(SharedVolumes, ADamagedFileOfThePoolIsAMiss) {
  PROMISE(1);
  a_->store_file(kRootInode, "f", std::string(400'000, 'x'));
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("f"); }));
  testing::damage_unseen(below("f"), 300'000);
  EXPECT_EQ(kMissing, b_.read("f"));
  EXPECT_EQ(1U, b_.counts().missed);
  EXPECT_EQ(400'000U, a_.read("f").size());
}

// A program that opens it to write finds no name the second time, however late its publication
// is heard of: a second ESTALE would be his error.
TEST_P(SharedVolumes, ADamagedNameIsAMissWhateverIsHeardOfIt) {
  a_->store_file(kRootInode, "f", std::string(400'000, 'x'));
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("f"); }));
  testing::damage_unseen(below("f"), 300'000);
  const auto found = std::chrono::steady_clock::now();
  EXPECT_ERROR(ESTALE, (*b_)->open(must(b_->resolve("f")), O_WRONLY, kRoot));
  do {
    b_.forget_misses();
    const bool is_found = b_.finds("f");
    if (std::chrono::steady_clock::now() - found >= DamagedFiles::kMissFor) break;
    ASSERT_FALSE(is_found);
  } while (true);
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.finds("f"); }));
}

// Its bytes are on their way before the lookup has been answered.
TEST_P(SharedVolumes, ADamagedBlockThatIsLookedUpLeavesNothing) {
  const std::string name = block_name(1);
  a_->store_file(kRootInode, name, std::string(400'000, 'x'));
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_.counts().published == 1; }));
  testing::damage_unseen(below(name), 300'000);
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.counts().found > 0 || b_.finds(name); }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.counts().missed > 0; }));
  // Its name goes just now.
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read(name) == kMissing; }));
  EXPECT_EQ(0U, b_.counts().loaded);
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_->objects() == 0; })) << b_->objects();
  // It is not asked for with each lookup.
  const auto began = std::chrono::steady_clock::now();
  const PoolCounts counts = b_.counts();
  EXPECT_LE(1U, counts.damaged);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(kMissing, b_.read(name));
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began)
          .count();
  EXPECT_GE(1 + static_cast<std::uint64_t>(seconds), b_.counts().asked - counts.asked);
  // Who stores it again mends it, for all.
  b_->store_file(kRootInode, name, std::string(400'000, 'x'));
  EXPECT_TRUE(TestVolume::wait_for([&] { return on_pool(name) == std::string(400'000, 'x'); }));
  EXPECT_EQ(0U, b_.counts().duplicates);
  Server c(*place_, 3);
  ASSERT_TRUE(TestVolume::wait_for([&] { return c.is_joined(); }));
  EXPECT_EQ(std::string(400'000, 'x'), c.read(name));
}

TEST_P(SharedVolumes, WhatWasEvictedComesAgain) {
  b_->store_file(kRootInode, block_name(1), "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.counts().published == 1; }));
  ASSERT_EQ(1U, must((*b_)->evict(block_name(1))).files);
  EXPECT_EQ("bytes", b_.read(block_name(1)));
  EXPECT_EQ(1U, b_.counts().loaded);
}

TEST_P(SharedVolumes, ARestartGoesOnWithWhatIsLeft) {
  PROMISE(7);
  const InodeNumber gone = a_->store_file(kRootInode, "gone", "bytes");
  ASSERT_TRUE(TestVolume::wait_for(
      [&] { return must(a_->catalog().find_pool_copy(gone)).has_value(); }));
  const InodeNumber f = a_->store_file(kRootInode, "f", "late");
  EXPECT_OK((*a_)->unlink(kRootInode, "gone"));
  ASSERT_TRUE(TestVolume::wait_for([&] { return a_->state_of(f) == DataState::kSealed; }));
  EXPECT_EQ("late", a_.read("f"));
  a_.stop();
  a_.run();
  EXPECT_FALSE(a_.finds("gone"));
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return b_.read("f") == "late" && !b_.finds("gone"); }));
  EXPECT_FALSE(is_on_pool("gone"));
}

TEST_P(SharedVolumes, AListingShowsWhatOthersHave) {
  const auto names_of = [](Server& server, InodeNumber directory) {
    std::vector<std::string> names = server->names_in(directory);
    std::sort(names.begin(), names.end());
    return names;
  };
  a_->store_file(kRootInode, "a", "bytes");
  a_->store_file(a_->mkdir(kRootInode, "d"), "f", "bytes");
  b_->store_file(kRootInode, "b", "bytes");
  const std::vector<std::string> all = {"a", "b", "d"};
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return names_of(a_, kRootInode) == all && names_of(b_, kRootInode) == all; }));
  // The directory is there before what is in it.
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return names_of(b_, must(b_->resolve("d"))) == std::vector<std::string>{"f"}; }));
  // Nothing was looked up but d.
  EXPECT_EQ(std::nullopt, must(b_->catalog().find_dentry(kRootInode, "a")));
  // Who goes on with a listing sees each name once, whatever he looks up meanwhile.
  for (int i = 0; i < 100; ++i) put_on_pool("n" + std::to_string(i), "x");
  std::multiset<std::string> seen;
  std::uint64_t after = 0;
  for (bool more = true; more;) {
    more = false;
    must((*b_)->list(kRootInode, after, false, [&](const ListedEntry& listed) {
      if (more) return false;
      more = true;
      after = listed.entry.cookie;
      seen.insert(listed.entry.name);
      return true;
    }));
    if (more && seen.size() % 3 == 0)
      static_cast<void>(b_.finds("n" + std::to_string(seen.size() % 100)));
  }
  EXPECT_EQ(105U, seen.size());
  EXPECT_EQ(105U, std::set<std::string>(seen.begin(), seen.end()).size());
  // What is taken away here is shown no more, whether the pool still has it or not.
  EXPECT_TRUE(b_.finds("n7"));
  EXPECT_OK((*b_)->unlink(kRootInode, "n7"));
  std::vector<std::string> left;
  // On a busy machine the pool may count as away for a moment.
  EXPECT_TRUE(TestVolume::wait_for([&] {
    left = names_of(b_, kRootInode);
    EXPECT_EQ(0, std::count(left.begin(), left.end(), "n7"));
    return left.size() == 102;
  })) << left.size();
}

TEST_P(SharedVolumes, AnEmptyDirectoryIsNotThePoolThatWasJoined) {
  a_->store_file(kRootInode, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("f"); }));
  b_.stop();
  const std::string root = place_->root();
  std::filesystem::rename(root, root + ".mounted");
  std::filesystem::create_directory(root);
  b_.run();
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.health().last.code == ENOTCONN; }));
  b_->store_file(kRootInode, "g", "more");
  EXPECT_FALSE(b_.is_joined());
  EXPECT_TRUE(std::filesystem::is_empty(root));
  std::filesystem::remove(root);
  std::filesystem::rename(root + ".mounted", root);
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("f") == "bytes" && is_on_pool("g"); }));
}

TEST_P(SharedVolumes, ARemovedDirectoryGoesWhenNobodyUsesIt) {
  const InodeNumber d = a_->mkdir(kRootInode, "d");
  a_->store_file(d, "f", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("d/f"); }));
  ASSERT_TRUE(
      TestVolume::wait_for([&] { return must(a_->catalog().find_pool_copy(d)).has_value(); }));
  EXPECT_OK((*a_)->unlink(d, "f"));
  EXPECT_OK((*a_)->rmdir(kRootInode, "d"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !is_on_pool("d"); }));
}

TEST_P(SharedVolumes, ANameThatNobodyWantsGoesInItsTurn) {
  BudgetOptions small;
  small.lease = std::chrono::nanoseconds{1};
  small.devices = {{.size = 1 << 20, .min_free = {.bytes = 4096, .percent = 0}}};
  Server c(*place_, 3, {.writes = PoolWrites::kOff}, nullptr, small);
  ASSERT_TRUE(TestVolume::wait_for([&] { return c.is_joined(); }));
  put_on_pool("crawled", "bytes");
  // From here on this process's lookups are no uses.
  const Caller& crawler = TestVolume::kRoot;
  must((*c)->list(
      kRootInode, 0, false, [](const ListedEntry&) { return true; }, crawler));
  ASSERT_TRUE(TestVolume::wait_for([&] {
    const Result<Entry> found = (*c)->lookup(kRootInode, "crawled", crawler);
    if (found.ok()) (*c)->forget(found->inode, 1);
    return found.ok();
  }));
  const auto is_known = [&] {
    return must(c->catalog().find_dentry(kRootInode, "crawled")).has_value();
  };
  ASSERT_TRUE(is_known());
  const std::string bytes(128 << 10, 'b');
  for (int i = 0; i < 60 && is_known(); ++i) {
    (*c)->forget(c->store_file(kRootInode, "f" + std::to_string(i), bytes), 1);
    TestVolume::wait_for([&] { return (*c)->room_on(0).room.bytes > 0; });
  }
  // The evictor's thread may be behind with what was stored.
  EXPECT_TRUE(TestVolume::wait_for([&] { return !is_known(); }));
  // A lookup that the pool answers too late, beside others, is a miss.
  EXPECT_TRUE(TestVolume::wait_for([&] { return c.read("crawled") == "bytes"; }));
}

INSTANTIATE_TEST_SUITE_P(All, SharedVolumes, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
