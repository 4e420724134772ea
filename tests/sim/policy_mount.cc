// policy_mount play TRACE.jsonl.gz REQUESTS RUNTIME IN_FLIGHT SEED SPEED BYTES DIRECTORY
// policy_mount simulate TRACE.jsonl.gz REQUESTS RUNTIME IN_FLIGHT SEED SPEED BLOCKS
//
// Plays the first REQUESTS of a trace as a runtime's calls: by threads in a directory on a mount, in
// files of BYTES, or in virtual time in a cache of so many BLOCKS with the mount's policy and with plain
// LRU. A line of JSON: the usable-prefix ratio of each.
//
// Engines are SPEED times as fast as in policy_sim. The lease and what counts as young are not scaled: the
// mount is to have a short lease, and what is used in a second should be little against what it holds.
//
// RUNTIME is one that looks up all of a prompt: by what it does not find the engine knows what was evicted.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_set>

#include "tests/sim/mount_executor.h"
#include "tests/sim/policy_grade.h"

namespace sim = kvcachefs::sim;

namespace {

// Tells the engine of each block that was looked up and is not there.
class Misses : public sim::Executor {
 public:
  explicit Misses(sim::Executor& below) : below_(below) {}
  void set_engine(sim::Engine& engine) { engine_ = &engine; }

  void run(std::size_t pool, std::vector<sim::Task> tasks, Done done) override {
    std::vector<sim::BlockId> probed;
    for (const sim::Task& task : tasks) {
      if (task.op == sim::Op::kProbe)
        probed.insert(probed.end(), task.blocks.begin(), task.blocks.end());
    }
    below_.run(pool, std::move(tasks),
               [this, probed = std::move(probed),
                done = std::move(done)](const std::vector<sim::BlockId>& hits) {
                 const std::unordered_set<sim::BlockId> there(hits.begin(), hits.end());
                 for (const sim::BlockId block : probed) {
                   if (!there.contains(block)) engine_->evicted(block);
                 }
                 done(hits);
               });
  }
  void after(std::int64_t delay_ns, std::function<void()> call) override {
    below_.after(delay_ns, std::move(call));
  }
  [[nodiscard]] std::int64_t now_ns() const override { return below_.now_ns(); }

 private:
  sim::Executor& below_;
  sim::Engine* engine_ = nullptr;
};

void play(const sim::PolicyRun& run, const std::string& directory, std::size_t bytes) {
  const std::size_t blocks = run.trace.parents.size();
  const sim::MountFiles files(directory, run.runtime.name, blocks, bytes);
  sim::MountExecutor executor(
      run.runtime, files, blocks, sim::kEntryTimeoutNanos,
      {.looked_up = [](sim::BlockId) {}, .published = [](sim::BlockId) {}});
  Misses misses(executor);
  sim::Engine engine(run.trace, run.runtime, run.in_flight, run.seed + 1, misses, run.pace);
  misses.set_engine(engine);
  engine.start();
  executor.run_all();
  const sim::Engine::Served& served = engine.served();
  std::printf("{\"usable\": %.4f, \"lost\": %zu}\n",
              sim::Usable{served.blocks, served.usable}.ratio(), executor.lost());
}

void simulate(sim::PolicyRun run) {
  run.policy = sim::policy_named("chain", run.trace);
  const double chain = sim::grade_policy(run).all.ratio();
  run.policy = sim::policy_named("lru", run.trace);
  const double lru = sim::grade_policy(run).all.ratio();
  std::printf("{\"chain\": %.4f, \"lru\": %.4f}\n", chain, lru);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const std::int64_t speed = argc > 7 ? std::strtol(argv[7], nullptr, 10) : 0;
  if (speed < 1 || !((what == "play" && argc == 10) || (what == "simulate" && argc == 9))) {
    std::fprintf(
        stderr,
        "usage: policy_mount play TRACE.jsonl.gz REQUESTS RUNTIME IN_FLIGHT SEED SPEED BYTES"
        " DIRECTORY\n"
        "       policy_mount simulate TRACE.jsonl.gz REQUESTS RUNTIME IN_FLIGHT SEED SPEED"
        " BLOCKS\n");
    return 2;
  }
  const auto number = [&](int at) { return std::strtoul(argv[at], nullptr, 10); };
  const sim::Trace trace = sim::read_trace(argv[2], number(3));
  if (trace.requests.empty()) return 1;
  const sim::PolicyRun run{.trace = trace,
                           .runtime = sim::runtime_named(argv[4]),
                           .in_flight = number(5),
                           .capacity = what == "simulate" ? number(8) : 0,
                           .policy = {},
                           .seed = number(6),
                           .pace = sim::Pace{}.times(speed)};
  if (what == "play") {
    play(run, argv[9], number(8));
  } else {
    simulate(run);
  }
  return 0;
}
