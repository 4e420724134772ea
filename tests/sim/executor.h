// Who performs the calls that an engine plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
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

 protected:
  // The tasks of one run().
  struct Batch {
    std::size_t tasks_left = 0;
    std::vector<BlockId> hits;
    Done done;
  };
  struct QueuedTask {
    Task task;
    std::shared_ptr<Batch> batch;
  };

  // Null: there are none, and `done` is called a moment later.
  std::shared_ptr<Batch> new_batch(std::size_t tasks, Done done) {
    auto batch = std::make_shared<Batch>();
    batch->tasks_left = tasks;
    batch->done = std::move(done);
    if (tasks > 0) return batch;
    after(0, [batch] { batch->done(batch->hits); });
    return nullptr;
  }
};

}  // namespace kvcachefs::sim
