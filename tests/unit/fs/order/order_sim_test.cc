// Recorded traces, turned into the calls of each runtime: how much of the true order the learner
// finds. The bounds are a little below what the design reached in simulation.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tests/fakes/tests_dir.h"
#include "tests/sim/link_grade.h"

namespace kvcachefs::sim {
namespace {

struct Bounds {
  const char* runtime;
  double exact;
  double wrong;
};

void PrintTo(const Bounds& bounds, std::ostream* out) { *out << bounds.runtime; }

const Trace& conversation() {
  static const Trace trace = [] {
    const char* value = std::getenv("KVCACHEFS_FULL");
    const bool full = value != nullptr && std::string_view(value) == "1";
    return read_trace(
        std::string(testing::tests_dir()) + "/data/traces/mooncake_conversation.jsonl.gz",
        full ? SIZE_MAX : 3000);
  }();
  return trace;
}

class LinksOf : public ::testing::TestWithParam<Bounds> {};

void expect_within(const Bounds& bounds, std::initializer_list<std::size_t> in_flights,
                   std::int64_t entry_timeout_ns) {
  ASSERT_FALSE(conversation().requests.empty());
  const Runtime runtime = runtime_named(bounds.runtime);
  for (const std::size_t in_flight : in_flights) {
    const Grades grades =
        grade_links(conversation(), runtime, in_flight, /*seed=*/1, entry_timeout_ns);
    std::printf("%-10s %2zu in flight: %.3f/%.3f/%.3f, then %.3f/%.3f/%.3f\n",
                runtime.name.c_str(), in_flight, grades.first.coverage(),
                grades.first.exactness(), grades.first.wrong(), grades.second.coverage(),
                grades.second.exactness(), grades.second.wrong());
    std::fflush(stdout);
    EXPECT_GE(grades.second.exactness(), bounds.exact) << in_flight << " in flight";
    EXPECT_LE(grades.second.wrong(), bounds.wrong) << in_flight << " in flight";
    EXPECT_GE(grades.second.coverage(), 0.65);
  }
}

TEST_P(LinksOf, AreExactAtTheSecondSighting) {
  expect_within(GetParam(), {1, 4, 16}, /*entry_timeout_ns=*/0);
}

// Loads and stores begin with a lookup by whichever thread does them. Many workers shuffle these,
// too.
TEST_P(LinksOf, AreNotSpoiledByTheLookupsOfStores) {
  Bounds bounds = GetParam();
  if (bounds.wrong > 0.05) bounds.wrong += 0.02;
  expect_within(bounds, {16}, /*entry_timeout_ns=*/1'000'000'000);
}

INSTANTIATE_TEST_SUITE_P(
    Runtimes, LinksOf,
    ::testing::Values(Bounds{"vllm-all", 0.99, 0.01}, Bounds{"vllm-stop", 0.99, 0.01},
                      Bounds{"llm-d", 0.99, 0.01}, Bounds{"lmc-fs", 0.99, 0.01},
                      Bounds{"sglang", 0.99, 0.01}, Bounds{"fsnative4", 0.94, 0.01},
                      Bounds{"fsnative32", 0.60, 0.06}));

TEST(Traces, AreReadAsTheyAreDescribed) {
  const Trace& trace = conversation();
  ASSERT_FALSE(trace.requests.empty());
  EXPECT_EQ(14u, trace.requests[0].blocks.size());
  EXPECT_TRUE(trace.is_root(0));
  EXPECT_EQ(12u, trace.parents[13]);
  EXPECT_EQ(0u, trace.parents[14]);
  const Trace agentic =
      read_trace(std::string(testing::tests_dir()) + "/data/traces/agentic_coding.jsonl.gz", 4);
  ASSERT_EQ(4u, agentic.requests.size());
  EXPECT_EQ(73u, agentic.requests[0].blocks.size());
}

}  // namespace
}  // namespace kvcachefs::sim
