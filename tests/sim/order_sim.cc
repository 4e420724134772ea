// order_sim TRACE.jsonl.gz [REQUESTS [RUNTIME [IN_FLIGHT [ENTRY_TIMEOUT_MS]]]]: how well the order of prefixes is
// learned from the calls of each runtime; a line each, coverage / exact / wrong chain after the
// first and the second sighting.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/link_grade.h"

namespace sim = kvcachefs::sim;

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: order_sim TRACE.jsonl.gz [REQUESTS [RUNTIME [IN_FLIGHT"
                 " [ENTRY_TIMEOUT_MS]]]]\n");
    return 2;
  }
  const std::size_t requests = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : SIZE_MAX;
  const std::string only = argc > 3 ? argv[3] : "";
  const std::int64_t timeout_ns = argc > 5 ? std::strtol(argv[5], nullptr, 10) * 1'000'000 : 0;
  const sim::Trace trace = sim::read_trace(argv[1], requests);
  for (const sim::Runtime& runtime : sim::known_runtimes()) {
    if (!only.empty() && only != runtime.name) continue;
    for (const std::size_t in_flight : {1, 4, 16, 64}) {
      if (argc > 4 && *argv[4] != '\0' && std::strtoul(argv[4], nullptr, 10) != in_flight)
        continue;
      const auto begin = std::chrono::steady_clock::now();
      const sim::Grades grades =
          sim::grade_links(trace, runtime, in_flight, /*seed=*/1, timeout_ns);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      const sim::Grade& a = grades.first;
      const sim::Grade& b = grades.second;
      std::printf("%-10s C=%-2zu %.3f/%.3f/%.3f | %.3f/%.3f/%.3f  %zu calls %.2f s\n",
                  runtime.name.c_str(), in_flight, a.coverage(), a.exactness(), a.wrong(),
                  b.coverage(), b.exactness(), b.wrong(), grades.calls, took.count());
      std::fflush(stdout);
    }
  }
  return 0;
}
