#include "metadata/dentry_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

TEST(DentryCache, KnowsWhatWasRememberedPresentOrNot) {
  DentryCache cache;
  const DentryCache::Found first = cache.find("a");
  EXPECT_FALSE(first.known);
  cache.remember("a", "row", first.version);
  cache.remember("b", std::nullopt, cache.find("b").version);
  EXPECT_EQ("row", cache.find("a").value);
  EXPECT_TRUE(cache.find("b").known);
  EXPECT_FALSE(cache.find("b").value.has_value());
}

TEST(DentryCache, AChangeForgets) {
  DentryCache cache;
  cache.remember("a", "row", cache.find("a").version);
  const DentryCache::Changing changing(cache, {"a"});
  EXPECT_FALSE(cache.find("a").known);
}

TEST(DentryCache, WhatWasReadBeforeAChangeEndedIsNotKept) {
  DentryCache cache;
  std::uint64_t before = cache.find("a").version;
  std::uint64_t during = 0;
  {
    const DentryCache::Changing changing(cache, {"a"});
    cache.remember("a", "old", before);
    EXPECT_FALSE(cache.find("a").known);
    during = cache.find("a").version;
    // Nobody can tell whether the database had the change when this was read.
    cache.remember("a", "old", during);
  }
  EXPECT_FALSE(cache.find("a").known);
  cache.remember("a", "old", during);
  EXPECT_FALSE(cache.find("a").known);
}

TEST(DentryCache, HasAFixedSize) {
  DentryCache cache;
  for (int i = 0; i < 100'000; ++i) {
    const std::string key = std::to_string(i);
    cache.remember(key, key, cache.find(key).version);
  }
  int known = 0;
  for (int i = 0; i < 100'000; ++i) {
    const DentryCache::Found found = cache.find(std::to_string(i));
    if (!found.known) continue;
    EXPECT_EQ(std::to_string(i), found.value);
    ++known;
  }
  EXPECT_GT(known, 1000);
  EXPECT_LE(known, 16 * 512);
}

// Readers and writers at once over a table of their own: an answer is never older than the last
// change that had ended when the question was asked.
TEST(DentryCache, NeverAnswersWithWhatWasReplaced) {
  const std::uint64_t seed = testing::test_seed();
  constexpr int kKeys = 8;
  DentryCache cache;
  std::mutex mutex;
  std::map<std::string, int> table;
  std::array<std::atomic<int>, kKeys> settled{};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 1; i <= 20'000; ++i) {
        const int number = (i % (kKeys / 2)) * 2 + thread;
        const std::string key = std::to_string(number);
        {
          const DentryCache::Changing changing(cache, {key});
          const std::lock_guard lock(mutex);
          table[key] = i;
        }
        settled[static_cast<std::size_t>(number)] = i;
      }
    });
  }
  for (unsigned thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(seed + thread);
      for (int i = 0; i < 40'000; ++i) {
        const auto number = static_cast<std::size_t>(random() % kKeys);
        const std::string key = std::to_string(number);
        const int least = settled[number];
        DentryCache::Found found = cache.find(key);
        if (!found.known) {
          std::optional<std::string> value;
          {
            const std::lock_guard lock(mutex);
            if (table.count(key) > 0) value = std::to_string(table[key]);
          }
          cache.remember(key, value, found.version);
          found.value = value;
        }
        const int seen = found.value ? std::stoi(*found.value) : 0;
        ASSERT_GE(seen, least);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvcachefs
