// Write-back to a pool of which some calls fail, over each kind of pool.
#include "fs/pool/publisher.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/pool/pool_format.h"
#include "backend/pool/pool_sweep.h"
#include "fs/pool/publish_tries.h"
#include "fs/pool/put_off.h"
#include "tests/fakes/faulty_pool_session.h"
#include "tests/fakes/test_volume.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;
using testing::block_name;
using testing::must;
using testing::TestVolume;

class WriteBack : public ::testing::TestWithParam<testing::PoolPlaceMaker> {
 protected:
  WriteBack()
      : place_(GetParam().make()),
        service_(
            [this](Deadline) -> Result<std::unique_ptr<PoolSession>> {
              return std::unique_ptr<PoolSession>(
                  std::make_unique<testing::FaultyPoolSession>(TRY(place_->open()), faults_));
            },
            {.node = testing::kNode, .lease = 1000ms, .beat_every = 100ms}),
        volume_([this] {
          testing::TestVolumeOptions options;
          options.volume.pool = &service_;
          return options;
        }()) {}
  void SetUp() override {
    must(log_open({.file = log(), .level = LogLevel::kInfo}));
    volume_.start();
    ASSERT_TRUE(TestVolume::wait_for(
        [&] { return service_.is_usable() && service_.server_now() != 0; }));
  }
  void TearDown() override {
    faults_->clear();
    volume_.stop_cleanly();
    must(log_open({.file = "", .level = LogLevel::kOff}));
  }

  [[nodiscard]] std::string log() const { return volume_.directory() + "/log"; }
  // Another node of the pool, which this one follows by now.
  std::unique_ptr<PoolService> start_other() {
    Uuid node = service_.node();
    node[0] = 9;
    auto other =
        std::make_unique<PoolService>([this](Deadline) { return place_->open(); },
                                      PoolService::Options{.node = node, .beat_every = 100ms});
    other->start();
    EXPECT_TRUE(TestVolume::wait_for([&] {
      return other->living().size() == 2 && service_.living().size() == 2 &&
             service_.miss_time() == PoolService::kMissFollowed;
    }));
    return other;
  }
  // Lines of the log that say so.
  [[nodiscard]] int said(const std::string& what) const {
    log_flush();
    std::ifstream file(log());
    int lines = 0;
    for (std::string line; std::getline(file, line);)
      lines += line.find(what) != std::string::npos ? 1 : 0;
    return lines;
  }
  [[nodiscard]] PoolCounts counts() { return *volume_->pool_counts(); }
  [[nodiscard]] bool is_on_pool(const std::string& path) const {
    return std::filesystem::exists(place_->root() + "/" + path);
  }

  const std::unique_ptr<testing::PoolPlace> place_;
  std::atomic<int> faulted_{0};  // calls
  const std::shared_ptr<testing::PoolFaults> faults_ = std::make_shared<testing::PoolFaults>();
  PoolService service_;
  TestVolume volume_;
};

TEST_P(WriteBack, AFileThatFailsForItselfHoldsUpNobody) {
  faults_->set([this](std::string_view call, std::string_view path) {
    if (call != "link" || !path.starts_with("bad")) return 0;
    ++faulted_;
    return path == "bad-1" ? EACCES : EMLINK;
  });
  volume_.store_file(kRootInode, "bad-1", "bytes");
  volume_.store_file(kRootInode, "bad-2", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return faulted_ >= 2; }));
  for (int i = 0; i < 4; ++i) {
    const std::string name = "good-" + std::to_string(i);
    volume_.store_file(kRootInode, name, "bytes");
    ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool(name); }));
  }
  // Again and again, with pauses between, and said once of each.
  ASSERT_TRUE(TestVolume::wait_for([&] { return faulted_ >= 4; }));
  EXPECT_EQ(2, said("not published yet"));
  EXPECT_EQ(1, said("path=\"bad-1\""));
  EXPECT_EQ(0, said("write-back stopped"));
  EXPECT_TRUE(TestVolume::wait_for([&] { return counts().to_publish == 2; }));
  faults_->clear();
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_on_pool("bad-1") && is_on_pool("bad-2"); }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return counts().to_publish == 0; }));
  EXPECT_EQ(0U, counts().duplicates);
}

TEST_P(WriteBack, AFileThatIsTooSlowHoldsUpNobody) {
  faults_->set([this](std::string_view call, std::string_view path) {
    if (call != "link" || path != "slow") return 0;
    ++faulted_;
    return ETIMEDOUT;
  });
  volume_.store_file(kRootInode, "slow", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return faulted_ >= 1; }));
  for (int i = 0; i < 4; ++i) {
    const std::string name = "good-" + std::to_string(i);
    volume_.store_file(kRootInode, name, "bytes");
    ASSERT_TRUE(TestVolume::wait_for([&] { return is_on_pool(name); }));
  }
  EXPECT_EQ(0, said("write-back stopped"));
  EXPECT_TRUE(service_.is_usable());
  faults_->clear();
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_on_pool("slow"); }));
}

TEST_P(WriteBack, ANameThatCannotBeTakenAwayHoldsUpNobody) {
  for (const char* name : {"bad", "good"}) volume_.store_file(kRootInode, name, "bytes");
  ASSERT_TRUE(TestVolume::wait_for(
      [&] { return counts().published == 2 && counts().to_publish == 0; }));
  faults_->set([](std::string_view call, std::string_view path) {
    return call == "rename" && path == "bad" ? EACCES : 0;
  });
  must(volume_->unlink(kRootInode, "bad"));
  ASSERT_TRUE(TestVolume::wait_for([&] { return counts().failed >= 2; }));
  must(volume_->unlink(kRootInode, "good"));
  volume_.store_file(kRootInode, "new", "bytes");
  EXPECT_TRUE(TestVolume::wait_for([&] { return !is_on_pool("good") && is_on_pool("new"); }));
  EXPECT_TRUE(is_on_pool("bad"));
  EXPECT_EQ(1, said("not removed yet"));
  faults_->clear();
  EXPECT_TRUE(TestVolume::wait_for([&] { return !is_on_pool("bad"); }));
}

TEST_P(WriteBack, AFullPoolIsSaidOnce) {
  faults_->set_full();
  for (int i = 0; i < 5; ++i) volume_.store_file(kRootInode, "f" + std::to_string(i), "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return counts().failed >= 4; }));
  EXPECT_EQ(1, said("write-back stopped"));
  EXPECT_EQ(0, said("not published yet"));
  faults_->clear();
  EXPECT_TRUE(TestVolume::wait_for([&] { return counts().to_publish == 0; }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return said("write-back goes on") == 1; }));
}

TEST_P(WriteBack, APublicationOfWhichNobodyHeardIsItsOwn) {
  faults_->set([this](std::string_view call, std::string_view path) {
    return call == "linked" && path == block_name(1) && ++faulted_ == 1 ? ETIMEDOUT : 0;
  });
  const InodeNumber file = volume_.store_file(kRootInode, block_name(1), "bytes");
  EXPECT_TRUE(
      TestVolume::wait_for([&] { return counts().published + counts().duplicates > 0; }));
  EXPECT_EQ(1, faulted_);
  EXPECT_EQ(0U, counts().duplicates);
  EXPECT_EQ(1U, counts().published);
  const auto copy = must(volume_.catalog().find_pool_copy(file));
  ASSERT_TRUE(copy.has_value());
  struct stat status {};
  ASSERT_EQ(0, ::stat((place_->root() + "/" + block_name(1)).c_str(), &status));
  EXPECT_EQ(status.st_ino, copy->fileid);
  const std::filesystem::path tmp = place_->root() + "/.kvcachefs/tmp";
  EXPECT_TRUE(TestVolume::wait_for([&] {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tmp))
      if (entry.is_regular_file()) return false;
    return true;
  }));
}

// Others hear of what has gone by calls of which nobody heard.
TEST_P(WriteBack, ALostAnswerIsToldAllTheSame) {
  std::mutex mutex;
  std::vector<std::pair<PoolChange, std::uint64_t>> heard;
  Uuid other = service_.node();
  other[0] = 9;
  PoolService follower([this](Deadline) { return place_->open(); },
                       {.node = other, .beat_every = 100ms});
  follower.on_change = [&](const PoolLogRecord& record) {
    const std::lock_guard lock(mutex);
    heard.emplace_back(record.change, record.fileid);
  };
  follower.start();
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return follower.miss_time() == PoolService::kMissFollowed && follower.living().size() == 2;
  }));
  const auto has_heard = [&](PoolChange change, std::uint64_t fileid) {
    return TestVolume::wait_for([&] {
      const std::lock_guard lock(mutex);
      return std::count(heard.begin(), heard.end(), std::pair(change, fileid)) > 0;
    });
  };
  const auto fileid_of = [&](InodeNumber file) {
    EXPECT_TRUE(TestVolume::wait_for([&] {
      return counts().to_publish == 0 &&
             must(volume_.catalog().find_pool_copy(file)).has_value();
    }));
    return must(volume_.catalog().find_pool_copy(file))->fileid;
  };
  const InodeNumber file = volume_.store_file(kRootInode, "config.json", "first");
  const std::uint64_t first = fileid_of(file);
  ASSERT_TRUE(has_heard(PoolChange::kPublished, first));
  faults_->set([this](std::string_view call, std::string_view path) {
    const bool is_it = call == "renamed" && path == "config.json";
    return is_it && ++faulted_ == 1 ? ETIMEDOUT : 0;
  });
  volume_.rewrite(file, "second");
  EXPECT_TRUE(TestVolume::wait_for([&] { return faulted_ >= 1; }));
  const std::uint64_t second = fileid_of(file);
  EXPECT_NE(first, second);
  EXPECT_TRUE(has_heard(PoolChange::kRemoved, first));
  EXPECT_TRUE(has_heard(PoolChange::kPublished, second));
  faulted_ = 0;
  faults_->set([this](std::string_view call, std::string_view path) {
    const bool is_it = call == "renamed" && path.find("/trash/") != path.npos;
    return is_it && ++faulted_ == 1 ? ETIMEDOUT : 0;
  });
  must(volume_->unlink(kRootInode, "config.json"));
  EXPECT_TRUE(has_heard(PoolChange::kRemoved, second));
  EXPECT_FALSE(is_on_pool("config.json"));
}

// Two nodes replace a name at once: each has seen the same file there, so neither says that the other's is gone.
TEST_P(WriteBack, OfTwoThatReplaceANameAtOnceTheLastStands) {
  const std::unique_ptr<PoolService> other = start_other();
  ASSERT_FALSE(HasFailure());
  const std::string path = place_->root() + "/config.json";
  const InodeNumber file = volume_.store_file(kRootInode, "config.json", "first");
  ASSERT_TRUE(TestVolume::wait_for(
      [&] { return counts().published == 1 && counts().to_publish == 0; }));
  faults_->set([&](std::string_view call, std::string_view to) {
    if (call != "renamed" || to != "config.json" || ++faulted_ > 1) return 0;
    std::ofstream(path + ".other") << "other";
    std::filesystem::rename(path + ".other", path);
    struct stat status {};
    EXPECT_EQ(0, ::stat(path.c_str(), &status));
    other->tell({.change = PoolChange::kPublished,
                 .path_hash = pool_path_hash("config.json"),
                 .fileid = status.st_ino,
                 .size = 5});
    return 0;
  });
  volume_.rewrite(file, "second");
  ASSERT_TRUE(TestVolume::wait_for([&] { return faulted_ == 1 && counts().published == 2; }));
  EXPECT_TRUE(TestVolume::wait_for([&] {
    const Result<std::string> bytes = volume_.read_path("config.json");
    return bytes.ok() && *bytes == "other";
  }));
  std::ifstream there(path);
  EXPECT_EQ("other", std::string(std::istreambuf_iterator<char>(there), {}));
}

// The pool is full: what has just come there goes again, before its publication is recorded
// here.
TEST_P(WriteBack, WhatIsEvictedOnItsWayStaysHere) {
  const std::unique_ptr<PoolService> other = start_other();
  ASSERT_FALSE(HasFailure());
  const auto keep = [&](std::string_view name) {
    const auto dentry = must(volume_.catalog().find_dentry(kRootInode, name));
    must(volume_->set_xattr(dentry.value().inode, "user.kvcachefs.policy", "keep", 0,
                            TestVolume::kRoot));
  };
  const auto evict = [&](std::string_view path) {
    const std::string there = place_->root() + "/" + std::string(path);
    struct stat status {};
    EXPECT_EQ(0, ::stat(there.c_str(), &status));
    EXPECT_TRUE(std::filesystem::remove(there));
    other->tell({.change = PoolChange::kEvicted,
                 .path_hash = pool_path_hash(path),
                 .fileid = status.st_ino,
                 .size = 5});
    EXPECT_TRUE(TestVolume::wait_for(
        [&] { return must(volume_.catalog().list_by_fileid(status.st_ino, 1)).empty(); }));
  };
  faults_->set([&](std::string_view call, std::string_view path) {
    // Other names are the pool's own.
    if ((call != "linked" && call != "renamed") || path.starts_with(".kvcachefs/")) return 0;
    const int count = ++faulted_;
    if (count == 3) keep(path);
    if (count <= 3) evict(path);
    return 0;
  });
  const InodeNumber block = volume_.store_file(kRootInode, block_name(1), "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return faulted_ == 1 && counts().to_publish == 0; }));
  EXPECT_EQ("bytes", must(volume_.read_path(block_name(1))));
  EXPECT_FALSE(must(volume_.catalog().find_pool_copy(block)).has_value());
  EXPECT_FALSE(is_on_pool(block_name(1)));
  volume_.store_file(kRootInode, "config.json", "bytes");
  ASSERT_TRUE(TestVolume::wait_for([&] { return faulted_ == 2 && counts().to_publish == 0; }));
  EXPECT_EQ("bytes", must(volume_.read_path("config.json")));
  // What must not be lost comes once more.
  const InodeNumber kept = volume_.store_file(kRootInode, block_name(2), "bytes");
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return faulted_ == 4 && counts().to_publish == 0 && is_on_pool(block_name(2)); }));
  EXPECT_TRUE(must(volume_.catalog().find_pool_copy(kept)).has_value());
}

INSTANTIATE_TEST_SUITE_P(All, WriteBack, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

// A real filesystem, and a small one; a volume that evicts on it.
struct SmallPool {
  explicit SmallPool(std::uint64_t bytes) : size(bytes) {}

  const std::uint64_t size;
  const testing::TempMount small{"size=" + std::to_string(size)};
  PoolService service{
      [this](Deadline) { return open_dir_session(small.path()); },
      {.node = testing::kNode, .lease = 200ms, .beat_every = 100ms, .size = size}};
  TestVolume volume{options()};

 private:
  testing::TestVolumeOptions options() {
    testing::TestVolumeOptions options;
    options.volume.pool = &service;
    options.volume.pool_options.size = size;
    return options;
  }
};

TEST(FullPool, MakesRoomByWhatWasUsedLongestAgo) {
  SmallPool pool(16 << 20);
  auto& [size, small, service, volume] = pool;
  volume.start();
  const auto published = [&](std::uint64_t files) {
    return TestVolume::wait_for([&] { return volume->pool_counts()->published >= files; });
  };
  const std::string bytes(300'000, 'x');
  constexpr int kFiles = 20;
  for (int i = 0; i < kFiles; ++i) volume.store_file(kRootInode, block_name(i), bytes);
  ASSERT_TRUE(published(kFiles));
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume->pool_counts()->used > 5'000'000; }));
  // Somebody else takes all that is left.
  {
    std::ofstream filler(small / "filler", std::ios::binary);
    while (filler) filler << bytes << std::flush;
  }
  {
    std::ofstream filler(small / "filler", std::ios::binary | std::ios::app);
    while (filler) filler << 'x' << std::flush;
  }
  volume.store_file(kRootInode, block_name(kFiles), bytes);
  EXPECT_TRUE(published(kFiles + 1));
  EXPECT_GT(volume->pool_counts()->evicted, 0U);
  EXPECT_TRUE(service.is_usable());
  volume.stop_cleanly();
}

// Another node says that it holds more than there is.
TEST(FullPool, NobodyEvictsForBytesThatAreNotThere) {
  SmallPool pool(64 << 20);
  auto& [size, small, service, volume] = pool;
  volume.start();
  Uuid other = service.node();
  other[0] = 9;
  const Result<std::unique_ptr<PoolSession>> session = open_dir_session(small.path());
  ASSERT_TRUE(session.ok());
  const auto lie = [&] {
    const PoolNode node{.node = other,
                        .incarnation = {},
                        .lease = 200ms,
                        .log = 1,
                        .size = size,
                        .used = kMostPoolBytes,
                        .share = pool_share({service.node(), other})};
    return beat(**session, node, std::chrono::steady_clock::now() + 20s).ok();
  };
  ASSERT_TRUE(TestVolume::wait_for([&] { return lie() && service.living().size() == 2; }));
  constexpr int kFiles = 16;
  for (int i = 0; i < kFiles; ++i) volume.store_file(kRootInode, block_name(i), "bytes");
  ASSERT_TRUE(TestVolume::wait_for(
      [&] { return lie() && volume->pool_counts()->published >= kFiles; }));
  // The evictor looks twice a second.
  for (int looks = 0; looks < 30; ++looks) {
    ASSERT_TRUE(lie());
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_GT(volume->pool_counts()->used, 0U);
  EXPECT_EQ(0U, volume->pool_counts()->evicted);
  volume.stop_cleanly();
}

TEST(PutOff, PausesGrowAndAreBounded) {
  PutOff waiting;
  std::int64_t now = 1;
  EXPECT_FALSE(waiting.holds(7, now));
  EXPECT_EQ(PutOff::Noted::kFirst, waiting.note(7, now));
  std::int64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const std::int64_t begin = now;
    while (waiting.holds(7, now)) now += PutOff::kFirstPause / 2;
    EXPECT_GE(now - begin, last);
    last = now - begin;
    EXPECT_LE(last, PutOff::kLongestPause);
    EXPECT_EQ(PutOff::Noted::kAgain, waiting.note(7, now));
  }
  EXPECT_EQ(PutOff::kLongestPause, last);
  EXPECT_FALSE(waiting.holds(8, now));
  waiting.forget(7);
  EXPECT_FALSE(waiting.holds(7, now));
  for (std::uint64_t key = 0; key < PutOff::kMost; ++key)
    EXPECT_EQ(PutOff::Noted::kFirst, waiting.note(key, now));
  EXPECT_EQ(PutOff::Noted::kFull, waiting.note(PutOff::kMost, now));
  EXPECT_EQ(PutOff::Noted::kAgain, waiting.note(0, now));
}

TEST(PublishTries, AreThoseThatMayStillCome) {
  PublishTries tries;
  EXPECT_TRUE(tries.begin(1, 10).numbers.empty());
  EXPECT_EQ(std::vector<std::uint64_t>{10}, tries.begin(1, 11).numbers);
  // It has ended those before it.
  tries.prepared(1, 11, 500, 400);
  const PublishTries::Tries before = tries.begin(1, 12);
  EXPECT_EQ(std::vector<std::uint64_t>{11}, before.numbers);
  EXPECT_EQ(std::vector<std::uint64_t>{500}, before.files);
  EXPECT_EQ(std::vector<std::uint64_t>{400}, before.replaced);
  tries.forget(1);
  EXPECT_TRUE(tries.begin(1, 13).files.empty());
  for (std::uint64_t i = 0; i < 100; ++i) static_cast<void>(tries.begin(2, i));
  EXPECT_LE(tries.begin(2, 100).numbers.size(), PublishTries::kMostEach);
}

}  // namespace
}  // namespace kvcachefs
