// Notes reach the learner all, in their order, whoever is in a hurry.
#include "fs/known/order_feed.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kvcachefs {
namespace {

using What = order::Note::What;
using order::Learner;

constexpr order::Caller kEngine{.tid = 7, .process = 7};

order::Note note_of(What what, std::uint64_t block, std::int64_t when_ns = 1'000'000'000) {
  return {.what = what, .name = block, .caller = kEngine, .when_ns = when_ns};
}

TEST(OrderFeed, TellsAtOnceWhileItDoesNotRun) {
  Learner learner;
  OrderFeed feed(learner);
  feed.note(note_of(What::kStored, 1));
  EXPECT_TRUE(learner.eviction_key(1));
  feed.start();
  feed.stop();
  feed.note(note_of(What::kRemoved, 1));
  EXPECT_FALSE(learner.eviction_key(1));
}

TEST(OrderFeed, HasToldEverythingWhenItHasSettled) {
  Learner learner;
  OrderFeed feed(learner);
  feed.start();
  for (std::uint64_t block = 1; block <= 100; ++block) {
    feed.note(note_of(What::kStoreBegan, block));
    feed.note(note_of(What::kStored, block));
    feed.settle();
    EXPECT_TRUE(learner.eviction_key(block));
    feed.note(note_of(What::kRemoved, block));
    feed.settle();
    EXPECT_FALSE(learner.eviction_key(block));
  }
}

TEST(OrderFeed, TellsByItselfSoon) {
  Learner learner;
  OrderFeed feed(learner);
  feed.start();
  feed.note(note_of(What::kStored, 1));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (!learner.eviction_key(1) && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_TRUE(learner.eviction_key(1));
}

TEST(OrderFeed, KeepsTheOrderOfACallersNotes) {
  Learner learner;
  OrderFeed feed(learner);
  feed.start();
  constexpr std::uint64_t kBlocks = 200;
  std::int64_t when = 1'000'000'000;
  for (std::uint64_t block = 1; block <= kBlocks; ++block)
    feed.note(note_of(What::kStored, block, when += 100'000));
  for (int round = 0; round < 3; ++round) {
    when += 2'000'000'000;
    for (std::uint64_t block = 1; block <= kBlocks; ++block)
      feed.note(note_of(What::kHit, block, when += 100'000));
  }
  feed.settle();
  for (std::uint64_t block = 2; block <= kBlocks; ++block) {
    const auto parent = learner.parent(block);
    ASSERT_TRUE(parent) << block;
    EXPECT_EQ(block - 1, parent->name);
  }
}

TEST(OrderFeed, LosesNothingOfManyThreads) {
  Learner learner;
  OrderFeed feed(learner);
  feed.start();
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kEach = 50'000;  // together more than the feed holds
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&feed, thread] {
      for (std::uint64_t i = 0; i < kEach; ++i)
        feed.note(note_of(What::kStored, 1 + thread * kEach + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  feed.stop();
  EXPECT_EQ(kThreads * kEach, learner.sizes().stored);
}

}  // namespace
}  // namespace kvcachefs
