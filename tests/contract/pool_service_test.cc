// Nodes on one pool, over each kind of pool.
#include "backend/pool/pool_service.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "backend/base/clock.h"
#include "tests/fakes/expect_result.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;

bool comes_true(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < end) {
    if (what()) return true;
    std::this_thread::sleep_for(1ms);  // How often is looked.
  }
  return false;
}

// A node, and what it has heard.
class Node {
 public:
  Node(testing::PoolPlace& place, std::uint8_t number)
      : service_([&place](Deadline) { return place.open(); },
                 {.node = node_number(number), .lease = 1000ms, .dead_after = 4000ms}) {
    service_.on_change = [this](const PoolLogRecord& record) {
      const std::lock_guard lock(mutex_);
      heard_.insert(record.path_hash);
    };
    service_.on_gap = [this] {
      const std::lock_guard lock(mutex_);
      ++gaps_;
    };
    service_.start();
  }
  static Uuid node_number(std::uint8_t number) {
    Uuid node = *parse_uuid("01234567-89ab-cdef-0123-456789abcdef");
    node[0] = number;
    return node;
  }
  PoolService& operator*() { return service_; }
  PoolService* operator->() { return &service_; }
  bool has_heard(std::uint64_t hash) {
    const std::lock_guard lock(mutex_);
    return heard_.count(hash) > 0;
  }
  // How often it may have missed something.
  int gaps() {
    const std::lock_guard lock(mutex_);
    return gaps_;
  }

 private:
  std::mutex mutex_;
  std::set<std::uint64_t> heard_;
  int gaps_ = 0;
  PoolService service_;
};

class PoolServiceContract : public ::testing::TestWithParam<testing::PoolPlaceMaker> {
 protected:
  PoolServiceContract() : place_(GetParam().make()) {}
  const std::unique_ptr<testing::PoolPlace> place_;
};

TEST_P(PoolServiceContract, NodesMeetAndHearOfChanges) {
  Node a(*place_, 1);
  Node b(*place_, 2);
  ASSERT_TRUE(comes_true([&] { return a->living().size() == 2 && b->living().size() == 2; }));
  EXPECT_EQ(a->report().pool, b->report().pool);
  ASSERT_TRUE(comes_true([&] { return b->miss_time() == PoolService::kMissFollowed; }));
  constexpr std::uint64_t kChanges = 500;
  constexpr int kRounds = 10;
  int gaps = -1;
  for (int round = 0; round < kRounds && gaps != b.gaps(); ++round) {
    gaps = b.gaps();
    const std::uint64_t first = kChanges * static_cast<std::uint64_t>(round) + 1;
    const std::uint64_t last = first + kChanges - 1;
    for (std::uint64_t hash = first; hash <= last; ++hash) {
      b->misses().missed(hash, b->misses().before_asking(hash), INT64_MAX);
      a->tell({.change = PoolChange::kPublished, .path_hash = hash});
    }
    EXPECT_TRUE(comes_true([&] { return b.has_heard(last) || b.gaps() != gaps; }));
    // It doubts everything then: once it has met the other, and where a busy machine keeps either from its beats.
    if (b.gaps() != gaps) continue;
    for (std::uint64_t hash = first; hash <= last; ++hash) {
      ASSERT_TRUE(b.has_heard(hash)) << hash;
      ASSERT_FALSE(b->misses().holds(hash, 0)) << hash;
    }
  }
  EXPECT_EQ(gaps, b.gaps()) << "nothing was ever heard without a gap";
  EXPECT_EQ(0u, a->report().waiting);
  EXPECT_EQ(0u, a->report().untold);
  EXPECT_NEAR(static_cast<double>(a->server_now()), static_cast<double>(b->server_now()),
              static_cast<double>(5 * kNanosPerSecond));
}

TEST_P(PoolServiceContract, ADeadNodeIsNoticedAndMayComeBack) {
  Node a(*place_, 1);
  auto b = std::make_unique<Node>(*place_, 2);
  ASSERT_TRUE(comes_true([&] { return a->living().size() == 2; }));
  b.reset();
  EXPECT_TRUE(comes_true([&] { return a->living().size() == 1; }));
  a->misses().missed(7, a->misses().before_asking(7), INT64_MAX);
  b = std::make_unique<Node>(*place_, 2);
  // It may have published before it was noticed.
  EXPECT_TRUE(comes_true([&] { return !a->misses().holds(7, 0); }));
  (*b)->tell({.path_hash = 8});
  EXPECT_TRUE(comes_true([&] { return a.has_heard(8); }));
}

TEST_P(PoolServiceContract, JoinsAsSoonAsThePoolIsThere) {
  const std::string root = place_->root();
  std::filesystem::rename(root, root + ".away");
  Node a(*place_, 1);
  ASSERT_TRUE(comes_true([&] { return a->client().health().last.code != 0; }));
  EXPECT_FALSE(a->report().joined);
  EXPECT_EQ(PoolService::kMissUnfollowed, a->miss_time());
  std::filesystem::rename(root + ".away", root);
  EXPECT_TRUE(comes_true([&] { return a->report().joined; }));
}

TEST_P(PoolServiceContract, APoolOfAnotherFormatIsNotUsed) {
  std::filesystem::create_directory(place_->root() + "/.kvcachefs");
  std::ofstream(place_->root() + "/.kvcachefs/pool") << "kvcachefs pool\nformat 3\n";
  Node a(*place_, 1);
  EXPECT_TRUE(comes_true([&] { return a->report().refused.code == EPROTONOSUPPORT; }));
  EXPECT_FALSE(a->report().joined);
}

INSTANTIATE_TEST_SUITE_P(All, PoolServiceContract, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
