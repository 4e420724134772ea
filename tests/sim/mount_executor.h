// Performs an engine's calls with threads on a mount. The engine's callbacks run on the thread that
// is in run_all().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "tests/sim/executor.h"
#include "tests/sim/mount_files.h"

namespace kvcachefs::sim {

constexpr std::int64_t kEntryTimeoutNanos = 1'000'000'000;  // kBlockTimeout

class MountExecutor : public Executor {
 public:
  // Told by the threads that made the calls.
  struct Watcher {
    // The kernel did not know the name any more, and asked the daemon.
    std::function<void(BlockId)> looked_up;
    std::function<void(BlockId)> published;
  };

  // `entry_timeout_ns`: how long the kernel knows a name of a block.
  MountExecutor(const Runtime& runtime, const MountFiles& files, std::size_t blocks,
                std::int64_t entry_timeout_ns, Watcher watcher);
  ~MountExecutor() override;
  MountExecutor(const MountExecutor&) = delete;
  MountExecutor& operator=(const MountExecutor&) = delete;

  void run(std::size_t pool, std::vector<Task> tasks, Done done) override;
  void after(std::int64_t delay_ns, std::function<void()> call) override;
  [[nodiscard]] std::int64_t now_ns() const override;

  // Until nothing is left to happen.
  void run_all();
  // Of what was there when it was looked up, how much was gone when it was loaded.
  [[nodiscard]] std::size_t lost() const noexcept { return lost_; }

 private:
  using Call = std::function<void()>;
  struct Pool {
    std::condition_variable more;
    std::deque<QueuedTask> queue;
  };
  struct Timer {
    std::int64_t time_ns;
    std::uint64_t number;
    Call call;
  };
  struct Later {
    bool operator()(const Timer& a, const Timer& b) const noexcept {
      return a.time_ns != b.time_ns ? a.time_ns > b.time_ns : a.number > b.number;
    }
  };

  void work(Pool& pool);
  [[nodiscard]] std::vector<BlockId> perform(const Task& task);
  void store(BlockId block);
  [[nodiscard]] bool kernel_asks(BlockId block) const;
  void kernel_knows(BlockId block);
  Call next_call();

  const MountFiles& files_;
  const std::int64_t entry_timeout_ns_;
  const Watcher watcher_;
  // By block: until when the kernel knows its name.
  std::vector<std::atomic<std::int64_t>> known_until_ns_;

  std::atomic<std::size_t> lost_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Pool>> pools_;  // their queues are under mutex_
  std::deque<Call> ready_;                   // under mutex_
  std::size_t batches_ = 0;                  // under mutex_; not yet ready
  bool ending_ = false;                      // under mutex_
  std::priority_queue<Timer, std::vector<Timer>, Later> timers_;
  std::uint64_t timer_number_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace kvcachefs::sim
