// An inference engine that works through a trace, with so many requests in flight: it looks up the
// prompt's blocks, loads the prefix that is there, computes the rest and stores it, and answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tests/sim/executor.h"

namespace kvcachefs::sim {

// How fast engine and users are.
struct Pace {
  std::int64_t scheduler_step_ns = 20'000'000;
  std::int64_t prefill_ns = 200'000'000;  // of 16 blocks
  double decode_seconds = 2;              // the mean
  // From an answer to the next turn of its conversation.
  std::int64_t think_ns = 0;

  [[nodiscard]] Pace times(std::int64_t speed) const noexcept {
    return {.scheduler_step_ns = scheduler_step_ns / speed,
            .prefill_ns = prefill_ns / speed,
            .decode_seconds = decode_seconds / static_cast<double>(speed),
            .think_ns = think_ns};
  }
};

class Engine {
 public:
  // The trace and the executor must outlive the engine.
  Engine(const Trace& trace, Runtime runtime, std::size_t in_flight, std::uint64_t seed,
         Executor& executor, const Pace& pace = {});

  // Begins; everything else happens in the executor's callbacks.
  void start() { admit(); }

  // Its file is gone: it is stored anew when it is computed again.
  void evicted(BlockId block) { stored_.erase(block); }
  // Of all blocks of all prompts: how many were in a prefix that was there (or in the engine's own
  // memory, wanted by another request).
  struct Served {
    std::size_t requests = 0;
    std::size_t blocks = 0;
    std::size_t usable = 0;
  };
  [[nodiscard]] const Served& served() const noexcept { return served_; }

 private:
  struct Job {
    std::size_t request = 0;
    std::vector<BlockId> missing;
    std::size_t next_missing = 0;
    std::size_t stores_running = 0;
    bool answered = false;
  };
  using JobPtr = std::shared_ptr<Job>;

  void admit();
  bool may_begin(std::size_t request) const;
  void begin(std::size_t request);
  void probe(const JobPtr& job);
  void load(const JobPtr& job, const std::vector<BlockId>& hits);
  void compute(const JobPtr& job);
  void store(const JobPtr& job, const std::vector<BlockId>& blocks);
  void finish_if_done(const JobPtr& job);

  const Trace& trace_;
  const Runtime runtime_;
  const std::size_t most_in_flight_;
  Executor& executor_;
  const Pace pace_;
  std::mt19937_64 random_;
  std::size_t next_request_ = 0;
  std::deque<std::size_t> held_back_;  // their predecessors are in flight
  std::size_t in_flight_ = 0;
  std::vector<bool> done_;
  std::unordered_map<BlockId, std::size_t> wanted_;  // by how many requests in flight
  std::unordered_set<BlockId> stored_;               // or being stored
  Served served_;
};

}  // namespace kvcachefs::sim
