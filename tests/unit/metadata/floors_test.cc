#include "metadata/floors.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

std::uint64_t floor_of(Floors& floors, std::uint64_t owner) {
  return Floors::Walk(floors, owner).floor();
}

TEST(Floors, AWalkFindsWhatTheLastOneRemembered) {
  Floors floors;
  EXPECT_EQ(0u, floor_of(floors, 7));
  Floors::Walk(floors, 7).remember(1000);
  EXPECT_EQ(1000u, floor_of(floors, 7));
  EXPECT_EQ(0u, floor_of(floors, 8));
}

TEST(Floors, AWriteBelowLowersTheFloor) {
  Floors floors;
  Floors::Walk(floors, 7).remember(1000);
  { const Floors::Writing writing(floors, {{7, 2000}, {8, 5}}); }
  EXPECT_EQ(1000u, floor_of(floors, 7));
  { const Floors::Writing writing(floors, {{7, 500}}); }
  EXPECT_EQ(500u, floor_of(floors, 7));
}

TEST(Floors, AWriteDuringAWalkIsNotOverlooked) {
  Floors floors;
  {
    Floors::Walk walk(floors, 7);
    { const Floors::Writing writing(floors, {{7, 500}}); }
    walk.remember(1000);
  }
  EXPECT_EQ(500u, floor_of(floors, 7));
}

TEST(Floors, AWriteThatBeganBeforeAWalkIsNotOverlooked) {
  Floors floors;
  auto writing =
      std::make_unique<Floors::Writing>(floors, std::vector<Floors::Entry>{{7, 500}});
  {
    Floors::Walk walk(floors, 7);
    writing.reset();
    walk.remember(UINT64_MAX);
  }
  EXPECT_EQ(500u, floor_of(floors, 7));
}

TEST(Floors, ForgetsRatherThanGrows) {
  Floors floors;
  for (std::uint64_t owner = 0; owner < 100'000; ++owner) {
    Floors::Walk(floors, owner).remember(owner + 1);
  }
  int remembered = 0;
  for (std::uint64_t owner = 0; owner < 100'000; ++owner) {
    const std::uint64_t floor = floor_of(floors, owner);
    if (floor != 0) {
      EXPECT_EQ(owner + 1, floor);
      ++remembered;
    }
  }
  EXPECT_GT(remembered, 0);
  EXPECT_LE(remembered, 16 * 64);
}

// Writers and walkers at once on a list of their own: no walk that starts at its floor misses
// an entry that was there before it began and is there after it ended.
TEST(Floors, NeverHideAnEntry) {
  const std::uint64_t seed = testing::test_seed();
  Floors floors;
  std::mutex mutex;
  std::set<std::uint64_t> list;
  std::atomic<std::uint64_t> next{1};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(seed + static_cast<unsigned>(thread));
      for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t number = next++;
        {
          const Floors::Writing writing(floors, {{7, number}});
          if (random() % 8 == 0) std::this_thread::yield();
          const std::lock_guard lock(mutex);
          list.insert(number);
        }
        const std::lock_guard lock(mutex);
        if (list.size() > 4) list.erase(list.begin());
      }
    });
  }
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        std::set<std::uint64_t> before;
        {
          const std::lock_guard lock(mutex);
          before = list;
        }
        Floors::Walk walk(floors, 7);
        std::uint64_t first = UINT64_MAX;
        {
          const std::lock_guard lock(mutex);
          for (const std::uint64_t number : list) {
            EXPECT_TRUE(number >= walk.floor() || before.count(number) == 0) << number;
          }
          if (!list.empty()) first = *list.begin();
        }
        walk.remember(first);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvcachefs
