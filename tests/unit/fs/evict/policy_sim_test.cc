// Recorded traces, turned into the calls of runtimes, on a cache that holds a part of their blocks:
// what each eviction policy keeps for them. The bounds are what the design set out to reach.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fakes/tests_dir.h"
#include "tests/sim/policy_grade.h"

namespace kvcachefs::sim {
namespace {

bool is_full() {
  const char* value = std::getenv("KVCACHEFS_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

const Trace& trace_named(const std::string& name) {
  static std::map<std::string, Trace> traces;
  const auto known = traces.find(name);
  if (known != traces.end()) return known->second;
  return traces[name] = read_trace(
             std::string(testing::tests_dir()) + "/data/traces/" + name + ".jsonl.gz",
             SIZE_MAX);
}

PolicyRun run_of(const Trace& trace, const std::string& runtime, std::size_t percent,
                 const std::string& policy) {
  return {.trace = trace,
          .runtime = runtime_named(runtime),
          .in_flight = 4,
          .capacity = distinct_blocks(trace) * percent / 100,
          .policy = policy_named(policy, trace)};
}

struct Reach {
  const char* runtime;
  std::map<std::size_t, double> ratios;  // by percent of the distinct blocks
};

void PrintTo(const Reach& reach, std::ostream* out) { *out << reach.runtime; }

class ChainPolicyOf : public ::testing::TestWithParam<Reach> {};

TEST_P(ChainPolicyOf, KeepsWhatAgentsComeBackFor) {
  const Trace& trace = trace_named("agentic_coding");
  ASSERT_FALSE(trace.requests.empty());
  for (const auto& [percent, bound] : GetParam().ratios) {
    if (!is_full() && percent != 5) continue;
    const PolicyGrade grade = grade_policy(run_of(trace, GetParam().runtime, percent, "chain"));
    std::printf("%-10s %2zu %%: %.3f usable, %zu evicted\n", GetParam().runtime, percent,
                grade.all.ratio(), grade.evicted);
    std::fflush(stdout);
    EXPECT_GE(grade.all.ratio(), bound) << percent << " %";
    EXPECT_GT(grade.evicted, distinct_blocks(trace));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runtimes, ChainPolicyOf,
    ::testing::Values(Reach{"vllm-all", {{2, 0.40}, {5, 0.77}, {10, 0.91}}},
                      Reach{"vllm-stop", {{2, 0.31}, {5, 0.72}, {10, 0.91}}},
                      Reach{"fsnative32", {{2, 0.38}, {5, 0.73}, {10, 0.91}}}));

TEST(ChainPolicy, KeepsNoLessThanPlainLruWhereLittleComesBack) {
  for (const char* name : {"mooncake_conversation", "mooncake_synthetic"}) {
    const Trace& trace = trace_named(name);
    ASSERT_FALSE(trace.requests.empty());
    for (const Runtime& runtime : known_runtimes()) {
      if (!is_full() && runtime.name != "vllm-all" && runtime.name != "sglang") continue;
      for (const std::size_t percent : {2, 5, 10}) {
        if (!is_full() && percent != 5) continue;
        const double chain =
            grade_policy(run_of(trace, runtime.name, percent, "chain")).all.ratio();
        const double lru =
            grade_policy(run_of(trace, runtime.name, percent, "lru")).all.ratio();
        std::printf("%s %-10s %2zu %%: chain %.3f, lru %.3f\n", name, runtime.name.c_str(),
                    percent, chain, lru);
        std::fflush(stdout);
        EXPECT_GE(chain, lru - 0.005) << name << " " << runtime.name << " " << percent << " %";
      }
    }
  }
}

// What is there after a restart is what true chains would have kept, and goes in their order.
TEST(ChainPolicy, OutlivesARestart) {
  const Trace& trace = trace_named("mooncake_conversation");
  ASSERT_FALSE(trace.requests.empty());
  for (const std::size_t part : {4, 6, 8}) {
    if (!is_full() && part != 6) continue;
    double usable[2];
    for (const bool chain : {false, true}) {
      PolicyRun run = run_of(trace, "vllm-all", 5, chain ? "chain" : "true");
      run.restart_after = trace.requests.size() * part / 10;
      const PolicyGrade grade = grade_policy(run);
      EXPECT_GT(grade.after_restart.blocks, 100u);
      usable[chain ? 1 : 0] = grade.after_restart.ratio();
    }
    std::printf("after a restart at %zu0 %%: chain %.3f, true chains %.3f\n", part, usable[1],
                usable[0]);
    EXPECT_GE(usable[1], 0.9 * usable[0]);
  }
}

}  // namespace
}  // namespace kvcachefs::sim
