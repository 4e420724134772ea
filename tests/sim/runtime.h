// How each runtime turns a request into calls: which of its threads does what, in which order.
//
// Nothing here knows who executes the calls: an Engine plans, an Executor (executor.h) performs, in
// virtual time or with threads on a mount.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/trace.h"

namespace kvcachefs::sim {

enum class Op : std::uint8_t { kProbe, kLoad, kStore };

// What one thread does without a pause, in this order.
struct Task {
  Op op = Op::kProbe;
  std::vector<BlockId> blocks;
  bool stop_at_miss = false;
};

// How the blocks of a request are divided among the threads of a pool.
enum class Cut : std::uint8_t {
  kWhole,  // one thread does all
  kTiles,  // as many contiguous parts as there are threads
  kItems,  // one block a task, whichever thread is free takes the next
};

struct Stage {
  std::size_t pool = 0;
  Cut cut = Cut::kWhole;
};

struct Runtime {
  std::string name;
  std::vector<std::size_t> pools;  // threads in each
  Stage probes;
  Stage loads;
  Stage stores;
  bool stop_at_miss = false;
  // A block that a request in flight wants is not looked up again.
  bool skips_in_flight = false;
};

std::vector<Runtime> known_runtimes();
Runtime runtime_named(const std::string& name);

std::vector<Task> cut_into_tasks(const Runtime& runtime, Op op,
                                 const std::vector<BlockId>& blocks);
const Stage& stage_of(const Runtime& runtime, Op op);

}  // namespace kvcachefs::sim
