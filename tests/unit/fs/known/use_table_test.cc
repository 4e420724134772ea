#include "fs/known/use_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace kvcachefs {
namespace {

TEST(UseTable, CountsEachModelOfEachRuntime) {
  UseTable table;
  const auto one = table.series_of(Runtime::kVllm, "m");
  const auto other = table.series_of(Runtime::kSglangFile, "m");
  EXPECT_NE(one, other);
  EXPECT_EQ(one, table.series_of(Runtime::kVllm, "m"));
  table.looked_up(one, true);
  table.looked_up(one, false);
  table.looked_up(other, false);
  table.loaded(one, 100);
  table.loaded(one, 20);
  const std::vector<Use> uses = table.uses();
  ASSERT_EQ(2u, uses.size());
  EXPECT_EQ("vllm", uses[0].runtime);
  EXPECT_EQ("m", uses[0].model);
  EXPECT_EQ(1u, uses[0].hits);
  EXPECT_EQ(1u, uses[0].misses);
  EXPECT_EQ(2u, uses[0].loads);
  EXPECT_EQ(120u, uses[0].loaded_bytes);
  EXPECT_EQ("sglang_file", uses[1].runtime);
}

TEST(UseTable, ShowsNothingThatWasNotUsed) {
  UseTable table;
  EXPECT_NE(UseTable::kOther, table.series_of(Runtime::kVllm, "m"));
  EXPECT_TRUE(table.uses().empty());
}

TEST(UseTable, CountsWhatIsTooManyTogether) {
  UseTable table;
  for (std::size_t at = 0; at < 2 * UseTable::kMost; ++at)
    table.looked_up(table.series_of(Runtime::kVllm, std::to_string(at)), true);
  const std::vector<Use> uses = table.uses();
  ASSERT_EQ(UseTable::kMost + 1, uses.size());
  EXPECT_EQ("other", uses[0].runtime);
  EXPECT_EQ("other", uses[0].model);
  EXPECT_EQ(UseTable::kMost, uses[0].hits);
  EXPECT_EQ("0", uses[1].model);
  EXPECT_EQ(UseTable::kOther, table.series_of(Runtime::kVllm, "one more"));
}

TEST(UseTable, GivesOneSeriesToManyThreads) {
  UseTable table;
  constexpr int kThreads = 4;
  constexpr int kModels = 20;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&table] {
      for (int model = 0; model < kModels; ++model)
        table.looked_up(table.series_of(Runtime::kVllm, std::to_string(model)), true);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<Use> uses = table.uses();
  ASSERT_EQ(std::size_t{kModels}, uses.size());
  for (const Use& use : uses) EXPECT_EQ(std::uint64_t{kThreads}, use.hits) << use.model;
}

}  // namespace
}  // namespace kvcachefs
