// What stands on a pool is counted, and the coldest of it found, over each kind of pool.
#include "backend/pool/pool_tally.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "backend/pool/pool_format.h"
#include "backend/pool/pool_members.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/faulty_pool_session.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using testing::soon;

constexpr std::int64_t kMinute = 60 * kNanosPerSecond;

std::vector<std::string> paths(const PoolTally& tally) {
  std::vector<std::string> out;
  for (const PoolColdFile& file : tally.coldest()) out.push_back(file.path);
  return out;
}

TEST(PoolTally, TheOldestUseGoesFirstAndAChainFromItsEnd) {
  PoolTally tally(100);
  tally.add({.path = "new", .fileid = 1, .size = 1, .used = 9 * kMinute, .written = 0});
  for (int i = 0; i < 3; ++i)
    tally.add({.path = "chain" + std::to_string(i),
               .fileid = 2,
               .size = 1,
               .used = 3 * kMinute + i,
               .written = kMinute + i});
  tally.add({.path = "old", .fileid = 3, .size = 1, .used = kMinute, .written = kMinute});
  EXPECT_EQ((std::vector<std::string>{"old", "chain2", "chain1", "chain0", "new"}),
            paths(tally));
  EXPECT_EQ(5u, tally.files());
  EXPECT_EQ(5u, tally.bytes());
}

TEST(PoolTally, RemembersNoMoreThanIsWanted) {
  PoolTally tally(10);
  for (int i = 1000; i > 0; --i)
    tally.add({.path = std::to_string(i), .fileid = 1, .size = 4, .used = i * kMinute});
  EXPECT_EQ((std::vector<std::string>{"1", "2", "3"}), paths(tally));
  EXPECT_EQ(4000u, tally.bytes());
  PoolTally small(UINT64_MAX);
  for (std::size_t i = 0; i < 2 * PoolTally::kMostCold; ++i)
    small.add({.path = std::to_string(i), .fileid = 1, .size = 1, .used = 0, .written = 0});
  EXPECT_EQ(PoolTally::kMostCold, small.coldest().size());
}

TEST(PoolTally, WhatMayNotGoIsCountedAlone) {
  PoolTally tally(10, std::make_shared<const PoolTally::Numbers>(PoolTally::Numbers{1, 2}));
  for (std::uint64_t i = 1; i <= 3; ++i)
    tally.add({.path = std::to_string(i), .fileid = i, .size = 4});
  EXPECT_EQ(std::vector<std::string>{"3"}, paths(tally));
  EXPECT_EQ(12u, tally.bytes());
}

class PoolTallies : public testing::PoolTest {};

// Who may write to a pool gives his file any size and any time.
TEST(PoolTally, ASparseFileCountsByWhatItTakes) {
  const auto count = [](bool tells_taken) {
    auto tally = std::make_unique<PoolTally>(1000, nullptr, 100 * kMinute, tells_taken);
    const auto add = [&](const char* path, std::uint64_t size, std::uint64_t taken) {
      tally->add(path, {.fileid = 1, .size = size, .taken = taken, .atime = kMinute});
    };
    add("sparse", INT64_MAX, 0);
    add("sparse too", INT64_MAX, 0);
    add("whole", 600, 4096);
    add("half", 1000, 512);
    return tally;
  };
  const auto first = count(false);
  ASSERT_TRUE(first->is_doubtful());
  const auto second = count(true);
  EXPECT_FALSE(second->is_doubtful());
  EXPECT_EQ(1112u, second->bytes());
  EXPECT_EQ(4u, second->coldest().size());
  // Of a filesystem that does not tell the size is all there is; it stays a sum.
  PoolTally guess(1000);
  for (int i = 0; i < 50'000; ++i)
    guess.add(std::to_string(i), {.fileid = 1, .size = INT64_MAX, .atime = kMinute});
  EXPECT_EQ(UINT64_MAX, guess.bytes());
  EXPECT_EQ(1u, guess.coldest().size());
}

TEST(PoolTally, AUseThatIsYetToComeIsOneOfNow) {
  PoolTally tally(100, nullptr, 10 * kMinute);
  tally.add({.path = "now", .fileid = 1, .size = 1, .used = 9 * kMinute, .written = 0});
  tally.add({.path = "old", .fileid = 2, .size = 1, .used = 2 * kMinute, .written = 0});
  tally.add({.path = "future", .fileid = 3, .size = 1, .used = INT64_MAX, .written = kMinute});
  tally.add({.path = "both", .fileid = 4, .size = 1, .used = INT64_MAX, .written = INT64_MAX});
  tally.add({.path = "past", .fileid = 5, .size = 1, .used = INT64_MIN, .written = INT64_MIN});
  EXPECT_EQ((std::vector<std::string>{"past", "old", "now", "both", "future"}), paths(tally));
  EXPECT_EQ((std::vector<std::string>{"future", "both"}), tally.ahead());
}

TEST_P(PoolTallies, AUseThatIsYetToComeBecomesOneOfNow) {
  const Result<PoolFilePtr> file = session_->create("f", 0644, soon());
  ASSERT_OK(file);
  const UnixNanos now = (*file)->status().mtime;
  const auto use_at = [&](UnixNanos when) {
    const timespec times[2] = {to_timespec(when), {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
    ASSERT_EQ(0, ::utimensat(AT_FDCWD, below("f").c_str(), times, 0));
    ASSERT_OK(use_now(*session_, "f", now, soon()));
  };
  const auto used = [&] {
    struct stat status {};
    EXPECT_EQ(0, ::stat(below("f").c_str(), &status));
    return to_nanos(status.st_atim);
  };
  use_at(now + 365 * 24 * 60 * kMinute);
  EXPECT_LT(used(), now + 10 * kMinute);
  use_at(now - 10 * kMinute);
  EXPECT_EQ(now - 10 * kMinute, used());
}

TEST_P(PoolTallies, CountsItsOwnTopsAndNotTheService) {
  const Uuid node = testing::kNode;
  ASSERT_OK(join_pool(*session_, node, soon()));
  const std::string root = place_->root();
  for (const char* directory : {"/mine/a/b", "/mine/c", "/other"})
    std::filesystem::create_directories(root + directory);
  for (const char* file : {"/mine/f", "/mine/a/f", "/mine/a/b/f", "/other/f", "/top"})
    std::ofstream(root + file) << std::string(100, 'x');
  PoolTally tally(UINT64_MAX);
  std::vector<std::string> left = {""};
  while (!left.empty()) {
    const std::string path = left.back();
    left.pop_back();
    const Result<std::vector<std::string>> below = tally_directory(
        *session_, path, [](std::string_view top) { return top != "other"; }, tally, soon());
    ASSERT_OK(below);
    left.insert(left.end(), below->begin(), below->end());
  }
  EXPECT_EQ(4u, tally.files());
  EXPECT_EQ(400u, tally.bytes());
  EXPECT_OK(tally_directory(
      *session_, "gone", [](std::string_view) { return true; }, tally, soon()));
}

// A server's lost+found, or what is mounted below.
TEST_P(PoolTallies, PassesOverWhatIsNotThePools) {
  const auto faults = std::make_shared<testing::PoolFaults>();
  testing::FaultyPoolSession session(place_->open().value(), faults);
  int code = 0;
  faults->set([&code](std::string_view, std::string_view path) {
    return path == "lost+found" || path.empty() ? code : 0;
  });
  std::filesystem::create_directory(place_->root() + "/lost+found");
  PoolTally tally(UINT64_MAX);
  const auto all = [](std::string_view) { return true; };
  for (const int error : {EACCES, EXDEV}) {
    code = error;
    EXPECT_OK(tally_directory(session, "lost+found", all, tally, soon()));
    EXPECT_ERROR(error, tally_directory(session, "", all, tally, soon()));
  }
  code = EIO;
  EXPECT_ERROR(EIO, tally_directory(session, "lost+found", all, tally, soon()));
}

INSTANTIATE_TEST_SUITE_P(All, PoolTallies, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
