// Performs an engine's calls in virtual time: pools of threads with wake-up delays and call times
// as measured on real runtimes. Every call goes to a sink, in the order of time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "tests/sim/executor.h"

namespace kvcachefs::sim {

enum class CallType : std::uint8_t { kHit, kMiss, kLoad, kStoreStart, kPublished };

struct Call {
  CallType type = CallType::kHit;
  BlockId block = 0;
  std::uint32_t tid = 0;
  std::uint32_t process = 0;
  std::int64_t time_ns = 0;
};
using CallSink = std::function<void(const Call&)>;

class VirtualExecutor : public Executor {
 public:
  // `entry_timeout_ns`: how long the kernel knows the result of a lookup: a probe before that is
  // not seen, a load or a store after it begins with a lookup of its own. 0: every probe is seen,
  // whatever directory is missing, and loads and stores look nothing up.
  VirtualExecutor(const Runtime& runtime, std::size_t blocks, std::uint64_t seed,
                  std::int64_t entry_timeout_ns, CallSink sink);

  void run(std::size_t pool, std::vector<Task> tasks, Done done) override;
  void after(std::int64_t delay_ns, std::function<void()> call) override;
  [[nodiscard]] std::int64_t now_ns() const override { return now_ns_; }

  // The block's file is gone. To be called from the sink.
  void evicted(BlockId block) { stored_[block] = false; }
  // Until nothing is left to happen.
  void run_all();

 private:
  struct Pool {
    std::deque<std::uint32_t> idle;  // thread ids, the longest idle first
    std::deque<QueuedTask> queue;
  };
  struct Event {
    std::int64_t time_ns;
    std::uint64_t number;
    std::function<void()> call;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const noexcept {
      return a.time_ns != b.time_ns ? a.time_ns > b.time_ns : a.number > b.number;
    }
  };

  void dispatch(std::size_t pool);
  void step(std::size_t pool, std::uint32_t tid, const std::shared_ptr<QueuedTask>& task,
            std::size_t at);
  void finish(std::size_t pool, std::uint32_t tid, const QueuedTask& task);
  std::int64_t exponential(double mean_us);
  std::int64_t lognormal(double median_ms);
  [[nodiscard]] bool kernel_knows(BlockId block) const {
    return now_ns_ - looked_up_ns_[block] < entry_timeout_ns_;
  }
  void look_up_again(BlockId block, std::uint32_t tid);
  void emit(CallType type, BlockId block, std::uint32_t tid);

  std::vector<Pool> pools_;
  std::vector<bool> stored_;
  std::vector<std::int64_t> looked_up_ns_;
  const std::int64_t entry_timeout_ns_;
  std::mt19937_64 random_;
  CallSink sink_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::int64_t now_ns_ = 1'000'000'000;
  std::uint64_t event_number_ = 0;
};

}  // namespace kvcachefs::sim
