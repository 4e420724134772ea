#include "tests/sim/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace kvcachefs::sim {

std::vector<Runtime> known_runtimes() {
  const Stage first{.pool = 0, .cut = Cut::kWhole};
  const auto shared = [](std::string name, std::size_t threads, Cut cut) {
    const Stage all{.pool = 0, .cut = cut};
    return Runtime{.name = std::move(name),
                   .pools = {threads},
                   .probes = all,
                   .loads = all,
                   .stores = all};
  };
  return {
      {.name = "vllm-all",
       .pools = {1, 16, 16},
       .probes = first,
       .loads = {1, Cut::kTiles},
       .stores = {2, Cut::kTiles},
       .skips_in_flight = true},
      {.name = "vllm-stop",
       .pools = {1, 16, 16},
       .probes = first,
       .loads = {1, Cut::kItems},
       .stores = {2, Cut::kItems},
       .stop_at_miss = true},
      {.name = "llm-d",
       .pools = {1, 64},
       .probes = first,
       .loads = {1, Cut::kItems},
       .stores = {1, Cut::kItems},
       .stop_at_miss = true},
      {.name = "lmc-fs",
       .pools = {1, 1, 8},
       .probes = first,
       .loads = {1, Cut::kWhole},
       .stores = {2, Cut::kItems},
       .stop_at_miss = true},
      shared("fsnative4", 4, Cut::kTiles),
      shared("fsnative32", 32, Cut::kTiles),
      shared("pool-item", 32, Cut::kItems),
      {.name = "sglang",
       .pools = {1, 1, 1},
       .probes = first,
       .loads = {1, Cut::kWhole},
       .stores = {2, Cut::kWhole},
       .stop_at_miss = true},
  };
}

Runtime runtime_named(const std::string& name) {
  for (Runtime& runtime : known_runtimes()) {
    if (runtime.name == name) return runtime;
  }
  std::fprintf(stderr, "no runtime is called %s\n", name.c_str());
  std::abort();
}

const Stage& stage_of(const Runtime& runtime, Op op) {
  if (op == Op::kProbe) return runtime.probes;
  return op == Op::kLoad ? runtime.loads : runtime.stores;
}

std::vector<Task> cut_into_tasks(const Runtime& runtime, Op op,
                                 const std::vector<BlockId>& blocks) {
  const Stage& stage = stage_of(runtime, op);
  const std::size_t threads = runtime.pools[stage.pool];
  std::size_t size = blocks.size();
  if (stage.cut == Cut::kItems) size = 1;
  if (stage.cut == Cut::kTiles) size = (blocks.size() + threads - 1) / threads;
  std::vector<Task> tasks;
  for (std::size_t begin = 0; begin < blocks.size(); begin += size) {
    const std::size_t end = std::min(begin + size, blocks.size());
    const auto first = blocks.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = blocks.begin() + static_cast<std::ptrdiff_t>(end);
    tasks.push_back(Task{.op = op,
                         .blocks = {first, last},
                         .stop_at_miss = op == Op::kProbe && runtime.stop_at_miss});
  }
  return tasks;
}

}  // namespace kvcachefs::sim
