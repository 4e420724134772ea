// policy_sim TRACE.jsonl.gz [REQUESTS [RUNTIME [IN_FLIGHT]]]: the usable-prefix ratio of each policy
// at 2, 5 and 10 % of the trace's distinct blocks, of the whole trace and of the first 32 requests
// after a restart at 40, 60 and 80 % of it; a line for each runtime and capacity.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/policy_grade.h"

namespace sim = kvcachefs::sim;

namespace {

void print_policy(sim::PolicyRun run, const std::string& policy) {
  run.policy = sim::policy_named(policy, run.trace);
  std::printf("  %s %.3f", policy.c_str(), sim::grade_policy(run).all.ratio());
  for (const std::size_t part : {4, 6, 8}) {
    run.restart_after = run.trace.requests.size() * part / 10;
    std::printf(" %.3f", sim::grade_policy(run).after_restart.ratio());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: policy_sim TRACE.jsonl.gz [REQUESTS [RUNTIME [IN_FLIGHT]]]\n");
    return 2;
  }
  const std::size_t requests = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : SIZE_MAX;
  const std::string only = argc > 3 ? argv[3] : "";
  const std::size_t in_flight = argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 4;
  const sim::Trace trace = sim::read_trace(argv[1], requests);
  const std::size_t distinct = sim::distinct_blocks(trace);
  std::printf("%zu requests, %zu distinct blocks, %zu in flight\n", trace.requests.size(),
              distinct, in_flight);
  for (const sim::Runtime& runtime : sim::known_runtimes()) {
    if (!only.empty() && only != runtime.name) continue;
    for (const std::size_t percent : {2, 5, 10}) {
      std::printf("%-10s %2zu %%:", runtime.name.c_str(), percent);
      for (const char* policy : {"lru", "chain", "true"}) {
        print_policy({.trace = trace,
                      .runtime = runtime,
                      .in_flight = in_flight,
                      .capacity = distinct * percent / 100,
                      .policy = {}},
                     policy);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return 0;
}
