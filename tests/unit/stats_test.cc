#include "fs/stats.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

constexpr std::int64_t kSecond = kNanosPerSecond;

OperationStats only(const std::vector<OperationStats>& all) {
  EXPECT_EQ(all.size(), 1u);
  return all.empty() ? OperationStats{} : all.front();
}

TEST(Stats, WhatWasNeverAskedIsNotListed) {
  const Stats stats;
  EXPECT_TRUE(stats.snapshot(kSecond).empty());
}

TEST(Stats, EveryOperationHasAName) {
  EXPECT_EQ(operation_name(Operation::kLookup), "lookup");
  EXPECT_EQ(operation_name(Operation::kCopyFileRange), "copy_file_range");
  EXPECT_EQ(operation_name(Operation::kIoctl), "ioctl");
  for (std::size_t i = 0; i < kOperations; ++i) {
    EXPECT_FALSE(operation_name(static_cast<Operation>(i)).empty()) << i;
  }
}

TEST(Stats, PercentilesAreWithinTenPercent) {
  Stats stats;
  // 1 µs to 10 ms, evenly: the median is 5 ms, the 99th percentile 9.9 ms.
  for (std::int64_t us = 1; us <= 10'000; ++us) {
    stats.record(Operation::kRead, kSecond, kSecond + us * 1000, us % 100 == 0);
  }
  const OperationStats read = only(stats.snapshot(2 * kSecond));
  EXPECT_EQ(read.name, "read");
  EXPECT_EQ(read.count, 10'000u);
  EXPECT_EQ(read.errors, 100u);
  EXPECT_NEAR(read.p50_us, 5000, 500);
  EXPECT_NEAR(read.p99_us, 9900, 990);
}

TEST(Stats, LatenciesOutsideTheRangeAreKept) {
  Stats stats;
  stats.record(Operation::kOpen, 100, 50, false);  // a clock that went back
  stats.record(Operation::kOpen, 0, 0, false);
  stats.record(Operation::kOpen, 0, 3600 * kSecond, false);
  EXPECT_EQ(only(stats.snapshot(3601 * kSecond)).count, 3u);
}

TEST(Stats, RateIsOfTheLastTenWholeSeconds) {
  Stats stats;
  for (int second = 0; second < 30; ++second) {
    for (int i = 0; i < second; ++i) {
      stats.record(Operation::kOpen, second * kSecond, second * kSecond + 1000, false);
    }
  }
  // At 30 s: the seconds 20 to 29, 245 in all.
  EXPECT_DOUBLE_EQ(only(stats.snapshot(30 * kSecond)).per_second, 24.5);
  // What is older than the window no longer counts.
  EXPECT_DOUBLE_EQ(only(stats.snapshot(60 * kSecond)).per_second, 0);
}

TEST(Stats, NothingIsLostBetweenThreads) {
  Stats stats;
  constexpr int kThreads = 20;  // more than there are shards
  constexpr int kEach = 5000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&stats] {
      for (int i = 0; i < kEach; ++i) {
        stats.record(Operation::kLookup, 0, (5 + i / 1000) * kSecond, i % 2 == 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const OperationStats lookup = only(stats.snapshot(10 * kSecond));
  EXPECT_EQ(lookup.count, static_cast<std::uint64_t>(kThreads * kEach));
  EXPECT_EQ(lookup.errors, static_cast<std::uint64_t>(kThreads * kEach / 2));
}

}  // namespace
}  // namespace kvcachefs
