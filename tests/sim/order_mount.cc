// order_mount DIRECTORY TRACE.jsonl.gz REQUESTS RUNTIME IN_FLIGHT SEED SPEED PART: plays a part of a
// trace as a runtime's calls, by threads, in a directory on a mount, and in virtual time through a
// learner alone. A line of JSON: how exact the links were at the second sighting in both.
//
// PART is `whole`, the first REQUESTS, or `reused`, of these the ones that share more than a root with
// another: fewer files for as many second sightings, but no request with nothing in common stands
// between them any more, and what many workers do at once is mixed up more. Blocks have 4 to 64
// bytes. Engines are SPEED times as fast as in order_sim, where 16 blocks take 200 ms and an answer
// 2 s. Lookups and stores take the time they take, and what is compared with constants of the kernel
// and the learner is not scaled: between an answer and the next turn are 1.2 s, more than the kernel
// knows a name, or the second sighting would never reach the mount. At a speed above 1 the mount is
// busier than with real engines, and the gaps between requests stand out less.
//
// A lookup counts as a sighting when it reaches the mount. That is not so for the first lookup of a
// block whose directory is missing: vLLM and llm-d make nearly one for each block, so a mount sees
// their stores first, then hits.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/link_grade.h"
#include "tests/sim/mount_executor.h"

namespace sim = kvcachefs::sim;

namespace {

constexpr sim::Pace kRealPace{.think_ns = 1'200'000'000};

sim::Grade on_mount(const sim::Trace& trace, const sim::Runtime& runtime, std::size_t in_flight,
                    std::uint64_t seed, const sim::Pace& pace, const std::string& directory) {
  const std::size_t blocks = trace.parents.size();
  const sim::MountFiles files(directory, runtime.name, blocks);
  sim::SecondSights sights(trace, [&](sim::BlockId block) { return files.parent(block); });
  sim::MountExecutor executor(
      runtime, files, blocks, sim::kEntryTimeoutNanos,
      {.looked_up = [&](sim::BlockId block) { sights.looked_up(block); },
       .published = [&](sim::BlockId block) { sights.published(block); }});
  sim::Engine engine(trace, runtime, in_flight, seed + 1, executor, pace);
  engine.start();
  executor.run_all();
  if (executor.lost() > 0) {
    std::fprintf(stderr, "%zu blocks were gone when they were loaded\n", executor.lost());
    std::exit(1);
  }
  return sights.grade();
}

void print(const char* where, const sim::Grade& grade) {
  std::printf("\"%s\": {\"blocks\": %zu, \"coverage\": %.4f, \"exact\": %.4f, \"wrong\": %.4f}",
              where, grade.blocks, grade.coverage(), grade.exactness(), grade.wrong());
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t speed = argc == 9 ? std::strtol(argv[7], nullptr, 10) : 0;
  if (speed < 1) {
    std::fprintf(
        stderr,
        "usage: order_mount DIRECTORY TRACE.jsonl.gz REQUESTS RUNTIME IN_FLIGHT SEED SPEED"
        " whole|reused\n");
    return 2;
  }
  const auto number = [&](int at) { return std::strtoul(argv[at], nullptr, 10); };
  sim::Trace trace = sim::read_trace(argv[2], number(3));
  if (std::string(argv[8]) != "whole") trace = sim::reused_part(trace);
  if (trace.requests.empty()) return 1;
  const sim::Runtime runtime = sim::runtime_named(argv[4]);
  const std::size_t in_flight = number(5);
  const std::uint64_t seed = number(6);
  const sim::Pace pace = kRealPace.times(speed);
  const sim::Grade mount = on_mount(trace, runtime, in_flight, seed, pace, argv[1]);
  const sim::Grade simulation =
      sim::grade_second_sights(trace, runtime, in_flight, seed, sim::kEntryTimeoutNanos, pace);
  std::printf("{");
  print("mount", mount);
  std::printf(", ");
  print("simulation", simulation);
  std::printf("}\n");
  return 0;
}
