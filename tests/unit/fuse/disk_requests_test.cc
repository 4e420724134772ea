#include "fs/fuse/disk_requests.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kSick = 0;
constexpr std::uint32_t kHealthy = 1;

// Requests whose work waits until let_go().
class DiskRequestsTest : public ::testing::Test {
 protected:
  using Ticket = std::shared_ptr<DiskRequests::Request>;

  ~DiskRequestsTest() override {
    let_go();
    join();
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  Ticket enter(std::uint32_t disk = kSick, std::uint32_t user = 0) {
    return requests_.enter(
        {.index = disk, .user = user},
        [this] {
          ++begun_;
          begun_.notify_all();
          gone_.wait(false);
          ++done_;
          done_.notify_all();
        },
        [this] {
          ++refused_;
          refused_.notify_all();
        });
  }
  void run(const Ticket& request) {
    threads_.emplace_back([this, request] { requests_.run(request); });
  }
  void let_go() {
    gone_ = true;
    gone_.notify_all();
  }
  static void await(std::atomic<int>& count, int wanted) {
    for (int now = count; now < wanted; now = count) count.wait(now);
  }

  std::atomic<int> begun_{0};
  std::atomic<int> done_{0};
  std::atomic<int> refused_{0};
  std::atomic<bool> gone_{false};
  std::vector<std::thread> threads_;
  DiskRequests requests_{2};
};

TEST_F(DiskRequestsTest, BoundsAreOfTheWholeMount) {
  for (const std::size_t disks : {1U, 2U, 3U, 8U, 100U}) {
    for (const std::size_t background : {1U, 9U, 24U, 64U}) {
      const DiskRequests::Bounds bounds = DiskRequests::bounds(disks, background);
      EXPECT_GE(bounds.begun, 8U);
      EXPECT_LE(bounds.begun, 32U);
      EXPECT_GE(bounds.on_way, bounds.begun);
      if (background > 10 * disks) {
        EXPECT_LT(bounds.on_way * disks, background) << disks << " disks, " << background;
      }
    }
  }
  EXPECT_LT(DiskRequests::bounds(2, 64).patience, DiskRequests::bounds(1, 64).patience);
}

TEST_F(DiskRequestsTest, MoreAreHeldAndDoneByWhoEndsOne) {
  requests_.set({.begun = 2, .on_way = 100, .patience = 1h});
  for (int i = 0; i < 5; ++i) run(enter());
  await(begun_, 2);
  EXPECT_EQ(requests_.on_way(), 5U);
  // The other disk has bounds of its own.
  run(enter(kHealthy));
  await(begun_, 3);
  EXPECT_EQ(begun_, 3);
  let_go();
  await(done_, 6);
  EXPECT_EQ(refused_, 0);
}

TEST_F(DiskRequestsTest, WhatIsTooMuchIsRefusedWhenItsDiskDoesNotAnswer) {
  requests_.set({.begun = 1, .on_way = 3, .patience = 50ms});
  std::vector<Ticket> tickets;
  for (int i = 0; i < 6; ++i) tickets.push_back(enter());
  run(tickets[0]);
  // Those that were queued before it was known: the last to come, and no more than is too much.
  await(refused_, 3);
  for (const Ticket& ticket : tickets) run(ticket);
  EXPECT_EQ(requests_.on_way(), 3U);
  // Those that come now.
  EXPECT_EQ(enter(), nullptr);
  EXPECT_EQ(refused_, 4);
  EXPECT_NE(enter(kHealthy), nullptr);
  let_go();
  await(done_, 3);
  EXPECT_EQ(begun_, 3);
}

// Of whom most wait.
TEST_F(DiskRequestsTest, WhoWaitsForMuchIsRefused) {
  requests_.set({.begun = 1, .on_way = 3, .patience = 50ms});
  run(enter(kSick, 1));
  await(begun_, 1);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 5; ++i) tickets.push_back(enter(kSick, 1));
  await(refused_, 3);
  const Ticket of_another = enter(kSick, 2);
  ASSERT_NE(of_another, nullptr);
  await(refused_, 4);
  EXPECT_EQ(requests_.on_way(), 3U);
  for (const Ticket& ticket : tickets) run(ticket);
  run(of_another);
  let_go();
  await(done_, 3);
}

// All of them wait for a thread: none is begun.
TEST_F(DiskRequestsTest, ADiskOfWhichNoneIsBegunDoesNotAnswerEither) {
  requests_.set({.begun = 1, .on_way = 2, .patience = 50ms});
  std::vector<Ticket> tickets;
  for (int i = 0; i < 5; ++i) tickets.push_back(enter());
  await(refused_, 3);
  let_go();
  for (const Ticket& ticket : tickets) run(ticket);
  await(done_, 2);
}

// One that takes long is not the disk's fault as long as others end.
TEST_F(DiskRequestsTest, ADiskAnswersAsLongAsItEndsSome) {
  requests_.set({.begun = 4, .on_way = 4, .patience = 500ms});
  run(enter(kSick, 1));
  await(begun_, 1);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 6; ++i) tickets.push_back(enter(kSick, 1));
  const auto until = std::chrono::steady_clock::now() + 700ms;
  while (std::chrono::steady_clock::now() < until) {
    ASSERT_TRUE(requests_.run_at_once({.index = kSick, .user = 2},
                                      [] { std::this_thread::sleep_for(1ms); }));
  }
  EXPECT_EQ(refused_, 0);
  await(refused_, 3);
  for (const Ticket& ticket : tickets) run(ticket);
}

// It takes some into memory.
TEST_F(DiskRequestsTest, ADiskThatEndsWritesAloneDoesNotAnswer) {
  requests_.set({.begun = 4, .on_way = 4, .patience = 50ms});
  std::vector<Ticket> tickets;
  for (int i = 0; i < 6; ++i) tickets.push_back(enter(kSick, 1));
  while (refused_ < 2) {
    ASSERT_TRUE(requests_.run_at_once({.index = kSick, .user = 2, .writes = true}, [] {}));
  }
  let_go();
  for (const Ticket& ticket : tickets) run(ticket);
  join();
  // One more while a write was on its way.
  EXPECT_LE(refused_, 3);
  EXPECT_EQ(6, done_ + refused_);
}

TEST_F(DiskRequestsTest, TheLastOfThoseThatMayBeginAreForOthers) {
  requests_.set({.begun = 8, .on_way = 100, .patience = 1h});
  for (int i = 0; i < 20; ++i) run(enter(kSick, 1));
  await(begun_, 6);
  EXPECT_FALSE(requests_.run_at_once({.index = kSick, .user = 1}, [] {}));
  EXPECT_EQ(begun_, 6);
  int did = 0;
  EXPECT_TRUE(requests_.run_at_once({.index = kSick, .user = 2}, [&] { ++did; }));
  EXPECT_EQ(did, 1);
  let_go();
  await(done_, 20);
}

TEST_F(DiskRequestsTest, NoneIsRefusedOfADiskThatAnswers) {
  requests_.set({.begun = 1, .on_way = 1, .patience = 1h});
  for (int i = 0; i < 50; ++i) run(enter());
  await(begun_, 1);
  let_go();
  join();
  EXPECT_EQ(done_, 50);
  EXPECT_EQ(refused_, 0);
  EXPECT_EQ(requests_.on_way(), 0U);
}

TEST_F(DiskRequestsTest, AtOnceOrNotAtAll) {
  requests_.set({.begun = 1, .on_way = 9, .patience = 1h});
  int did = 0;
  EXPECT_TRUE(requests_.run_at_once({.index = kSick}, [&] { ++did; }));
  run(enter());
  await(begun_, 1);
  EXPECT_FALSE(requests_.run_at_once({.index = kSick}, [&] { ++did; }));
  EXPECT_TRUE(requests_.run_at_once({.index = kHealthy}, [&] { ++did; }));
  // Of no disk, and of one that came later than this.
  EXPECT_TRUE(requests_.run_at_once({.index = std::nullopt}, [&] { ++did; }));
  EXPECT_TRUE(requests_.run_at_once({.index = 17}, [&] { ++did; }));
  EXPECT_EQ(did, 4);
}

// Many threads; each request is done or refused, once.
TEST_F(DiskRequestsTest, EachIsAnsweredOnce) {
  requests_.set({.begun = 2, .on_way = 4, .patience = 1ms});
  constexpr int kEach = 2000;
  constexpr int kThreads = 4;
  std::vector<std::atomic<int>> answers(kEach * kThreads);
  for (int thread = 0; thread < kThreads; ++thread) {
    threads_.emplace_back([this, thread, &answers] {
      for (int i = 0; i < kEach; ++i) {
        std::atomic<int>& mine = answers[static_cast<std::size_t>(thread * kEach + i)];
        const auto answer = [&mine] { ++mine; };
        const auto work = [&mine, i] {
          if (i % 100 == 0) std::this_thread::sleep_for(2ms);
          ++mine;
        };
        if (const Ticket ticket = requests_.enter(
                {.index = kSick, .user = static_cast<std::uint32_t>(thread)}, work, answer))
          requests_.run(ticket);
      }
    });
  }
  join();
  for (const auto& count : answers) ASSERT_EQ(count, 1);
  EXPECT_EQ(requests_.on_way(), 0U);
}

}  // namespace
}  // namespace kvcachefs
