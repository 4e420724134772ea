#include "backend/base/fair_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;

// Tasks that wait until they are let go, and are counted meanwhile.
class Gate {
 public:
  std::function<void()> task(std::uint64_t party) {
    return [this, party] {
      std::unique_lock lock(mutex_);
      running_.insert(party);
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_; });
      running_.erase(running_.find(party));
      changed_.notify_all();
    };
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  bool wait_for(std::uint64_t party, std::size_t running) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return running_.count(party) >= running; });
  }
  std::size_t running(std::uint64_t party) {
    const std::lock_guard lock(mutex_);
    return running_.count(party);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multiset<std::uint64_t> running_;
  bool open_ = false;
};

TEST(FairPool, RunsThoseOfAPartyInOrderWithOneThread) {
  std::vector<int> order;
  FairPool pool("test", {.each = 1, .most = 1, .queue = 100});
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(pool.try_post(7, [&order, i] { order.push_back(i); }));
  pool.drain();
  ASSERT_EQ(100u, order.size());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(i, order[static_cast<std::size_t>(i)]);
}

TEST(FairPool, APartyHasAtMostItsThreadsAndAnotherIsNotHeldUp) {
  Gate gate;
  FairPool pool("test", {.each = 4, .most = 16, .queue = 1000});
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(pool.try_post(1, gate.task(1)));
  ASSERT_TRUE(gate.wait_for(1, 4));
  // Whoever comes behind a hundred others of somebody else runs at once.
  for (std::uint64_t party = 2; party < 5; ++party) {
    std::atomic<bool> ran{false};
    ASSERT_TRUE(pool.try_post(party, [&ran] {
      ran = true;
      ran.notify_all();
    }));
    ran.wait(false);
  }
  EXPECT_EQ(4U, gate.running(1));
  EXPECT_EQ(96U, pool.waiting());
  gate.open();
  pool.drain();
  EXPECT_LE(pool.threads(), 7U);
}

TEST(FairPool, ManyPartiesShareTheThreads) {
  Gate gate;
  FairPool pool("test", {.each = 8, .most = 16, .queue = 10'000});
  for (int i = 0; i < 50; ++i)
    for (std::uint64_t party = 0; party < 16; ++party)
      ASSERT_TRUE(pool.try_post(party, gate.task(party)));
  for (std::uint64_t party = 0; party < 16; ++party) EXPECT_TRUE(gate.wait_for(party, 1));
  for (std::uint64_t party = 0; party < 16; ++party) EXPECT_EQ(1U, gate.running(party));
  gate.open();
  pool.drain();
  EXPECT_EQ(16U, pool.threads());
  EXPECT_EQ(0U, pool.waiting());
}

TEST(FairPool, RefusesWhatItsQueueCannotHold) {
  Gate gate;
  FairPool pool("test", {.each = 1, .most = 1, .queue = 2});
  ASSERT_TRUE(pool.try_post(1, gate.task(1)));
  ASSERT_TRUE(gate.wait_for(1, 1));
  EXPECT_TRUE(pool.try_post(1, [] {}));
  EXPECT_TRUE(pool.try_post(2, [] {}));
  EXPECT_EQ(2u, pool.waiting());
  EXPECT_FALSE(pool.try_post(3, [] {}));
  gate.open();
  pool.drain();
  EXPECT_TRUE(pool.try_post(3, [] {}));
}

TEST(FairPool, RunsWhatIsQueuedBeforeItEnds) {
  std::atomic<int> done{0};
  {
    FairPool pool("test", {.each = 2, .most = 3, .queue = 1000});
    for (int i = 0; i < 500; ++i)
      ASSERT_TRUE(pool.try_post(static_cast<std::uint64_t>(i % 7), [&done] { ++done; }));
  }
  EXPECT_EQ(500, done);
}

TEST(FairPool, ATaskMayPostAnotherAndDrainWaitsForBoth) {
  std::atomic<int> done{0};
  FairPool pool("test", {.each = 1, .most = 2, .queue = 10});
  ASSERT_TRUE(pool.try_post(1, [&] {
    ++done;
    EXPECT_TRUE(pool.try_post(1, [&done] { ++done; }));
  }));
  pool.drain();
  EXPECT_EQ(2, done);
}

TEST(FairPool, ManyPostersLoseNothing) {
  std::atomic<int> done{0};
  FairPool pool("test", {.each = 3, .most = 8, .queue = 100'000});
  std::vector<std::thread> posters;
  for (std::uint64_t party = 0; party < 6; ++party)
    posters.emplace_back([&, party] {
      for (int i = 0; i < 2000; ++i) ASSERT_TRUE(pool.try_post(party % 4, [&done] { ++done; }));
    });
  for (std::thread& poster : posters) poster.join();
  pool.drain();
  EXPECT_EQ(12'000, done);
}

}  // namespace
}  // namespace kvcachefs
