// Who performs the calls that an engine plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tests/sim/runtime.h"

namespace kvcachefs::sim {

class Executor {
 public:
  virtual ~Executor() = default;

  // Hands the tasks to a pool of threads, in this order. `done` runs when all are done, with the
  // blocks that were there (of probes). Callbacks run one at a time.
  using Done = std::function<void(const std::vector<BlockId>& hits)>;
  virtual void run(std::size_t pool, std::vector<Task> tasks, Done done) = 0;
  virtual void after(std::int64_t delay_ns, std::function<void()> call) = 0;
  [[nodiscard]] virtual std::int64_t now_ns() const = 0;
};

}  // namespace kvcachefs::sim
