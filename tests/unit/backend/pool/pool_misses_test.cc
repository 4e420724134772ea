#include "backend/pool/pool_misses.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

void miss(PoolMisses& misses, std::uint64_t hash, std::int64_t until) {
  misses.missed(hash, misses.before_asking(hash), until);
}

TEST(PoolMisses, HoldUntilTheirTime) {
  const auto misses = std::make_unique<PoolMisses>();
  EXPECT_FALSE(misses->holds(7, 0));
  miss(*misses, 7, 100);
  EXPECT_TRUE(misses->holds(7, 99));
  EXPECT_FALSE(misses->holds(7, 100));
  miss(*misses, 7, 200);
  EXPECT_TRUE(misses->holds(7, 150));
}

TEST(PoolMisses, WhatWasPublishedIsNoMiss) {
  const auto misses = std::make_unique<PoolMisses>();
  miss(*misses, 7, 100);
  misses->forget(7);
  EXPECT_FALSE(misses->holds(7, 0));
  // Published while the server was being asked, and the answer was on its way.
  const std::uint64_t ticket = misses->before_asking(7);
  misses->forget(7);
  misses->missed(7, ticket, 100);
  EXPECT_FALSE(misses->holds(7, 0));
  const std::uint64_t before = misses->before_asking(8);
  misses->forget_all();
  misses->missed(8, before, 100);
  EXPECT_FALSE(misses->holds(8, 0));
}

TEST(PoolMisses, AreBoundedAndNeverWrong) {
  const auto misses = std::make_unique<PoolMisses>(4096);
  std::mt19937_64 chance(testing::test_seed());
  std::vector<std::uint64_t> asked(20'000);
  for (std::uint64_t& hash : asked) miss(*misses, hash = chance(), 100);
  int held = 0;
  for (const std::uint64_t hash : asked) held += misses->holds(hash, 0) ? 1 : 0;
  EXPECT_GT(held, 2000);
  EXPECT_LE(held, 4096);
  for (int i = 0; i < 20'000; ++i) EXPECT_FALSE(misses->holds(chance(), 0));
  misses->forget_all();
  for (const std::uint64_t hash : asked) EXPECT_FALSE(misses->holds(hash, 0));
}

}  // namespace
}  // namespace kvcachefs
