// Which frames of a large file come next.
#include "fs/pool/frame_table.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

using Range = FrameTable::Range;
constexpr std::uint64_t kFrame = FrameTable::kFrame;

void arrive(FrameTable& table, Range range) {
  for (std::size_t frame = range.first; frame < range.end(); ++frame) table.arrived(frame);
  table.ended(range);
}

TEST(FrameTable, CoversBytesByFrames) {
  const FrameTable table(10 * kFrame + 5);
  EXPECT_EQ(11U, table.count());
  EXPECT_EQ((Range{.first = 0, .count = 1}), table.covering(0, 1));
  EXPECT_EQ((Range{.first = 0, .count = 2}), table.covering(kFrame - 1, 2));
  EXPECT_EQ((Range{.first = 10, .count = 1}), table.covering(10 * kFrame, UINT64_MAX));
  EXPECT_EQ((Range{.first = 0, .count = 11}), table.covering(0, UINT64_MAX));
  EXPECT_EQ(Range{}, table.covering(10 * kFrame + 5, 1));
  EXPECT_EQ(Range{}, table.covering(0, 0));
  EXPECT_TRUE(table.has(Range{}));
  EXPECT_EQ(5U, table.size_of({.first = 10, .count = 1}));
  EXPECT_EQ(kFrame + 5, table.size_of({.first = 9, .count = 2}));
}

TEST(FrameTable, WhatIsWaitedForComesFirst) {
  FrameTable table(100 * kFrame);
  EXPECT_EQ(std::nullopt, table.next_wanted());
  const auto far = table.want({.first = 70, .count = 2});
  const auto near = table.want({.first = 3, .count = 1});
  EXPECT_EQ(3U, table.wanted());
  EXPECT_EQ((Range{.first = 70, .count = 2}), table.next_wanted());
  EXPECT_EQ((Range{.first = 3, .count = 1}), table.next_wanted());
  // Both are on their way.
  EXPECT_EQ(std::nullopt, table.next_wanted());
  table.ended({.first = 70, .count = 2});
  EXPECT_EQ((Range{.first = 70, .count = 2}), table.next_wanted());
  arrive(table, {.first = 70, .count = 2});
  EXPECT_TRUE(table.has({.first = 70, .count = 2}));
  EXPECT_EQ(98U, table.missing());
  table.unwant(far);
  EXPECT_TRUE(table.is_wanted());
  table.unwant(near);
  EXPECT_FALSE(table.is_wanted());
}

TEST(FrameTable, AWindowDoublesForWhoReadsOn) {
  FrameTable table(200 * kFrame);
  auto want = table.want({.first = 0, .count = 1});
  arrive(table, *table.next_wanted());
  table.unwant(want);
  EXPECT_EQ((Range{.first = 1, .count = 2}), table.next_ahead());
  EXPECT_EQ((Range{.first = 3, .count = 4}), table.next_ahead());
  EXPECT_EQ((Range{.first = 7, .count = 8}), table.next_ahead());
  EXPECT_EQ((Range{.first = 15, .count = 16}), table.next_ahead());
  EXPECT_EQ((Range{.first = 31, .count = 16}), table.next_ahead());
  // Elsewhere it begins anew.
  want = table.want({.first = 150, .count = 1});
  EXPECT_EQ((Range{.first = 150, .count = 1}), table.next_wanted());
  EXPECT_EQ((Range{.first = 151, .count = 2}), table.next_ahead());
}

// Whatever is asked for and fails in between: every frame comes, none is asked for while it is on its way.
TEST(FrameTable, AllOfItComes) {
  const std::uint64_t seed = testing::test_seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    FrameTable table(random() % (64 * kFrame) + 1);
    std::vector<Range> coming;
    std::vector<FrameTable::Want> wants;
    std::set<std::size_t> under_way;
    for (int steps = 0; table.missing() > 0; ++steps) {
      ASSERT_LT(steps, 100'000) << "KVCACHEFS_SEED=" << seed;
      if (random() % 4 == 0)
        wants.push_back(
            table.want(table.covering(random() % (64 * kFrame), random() % (9 * kFrame))));
      if (!wants.empty() && random() % 4 == 0) {
        table.unwant(wants.back());
        wants.pop_back();
      }
      const auto next = random() % 2 == 0 ? table.next_wanted() : table.next_ahead();
      if (next) {
        ASSERT_GT(next->count, 0U);
        ASSERT_LE(next->count, FrameTable::kMostAtOnce);
        ASSERT_LE(next->end(), table.count());
        for (std::size_t frame = next->first; frame < next->end(); ++frame)
          ASSERT_TRUE(under_way.insert(frame).second) << "KVCACHEFS_SEED=" << seed;
        coming.push_back(*next);
      }
      if (!coming.empty() && random() % 2 == 0) {
        const Range range = coming.back();
        coming.pop_back();
        for (std::size_t frame = range.first; frame < range.end(); ++frame) {
          under_way.erase(frame);
          if (random() % 3 != 0) table.arrived(frame);
        }
        table.ended(range);
      }
    }
    EXPECT_TRUE(table.has({.first = 0, .count = table.count()}));
  }
}

}  // namespace
}  // namespace kvcachefs
