#include "tests/sim/mount_executor.h"

#include <utility>

namespace kvcachefs::sim {

MountExecutor::MountExecutor(const Runtime& runtime, const MountFiles& files,
                             std::size_t blocks, std::int64_t entry_timeout_ns, Watcher watcher)
    : files_(files),
      entry_timeout_ns_(entry_timeout_ns),
      watcher_(std::move(watcher)),
      known_until_ns_(blocks) {
  for (const std::size_t threads : runtime.pools) {
    Pool& pool = *pools_.emplace_back(std::make_unique<Pool>());
    for (std::size_t i = 0; i < threads; ++i)
      threads_.emplace_back([this, &pool] { work(pool); });
  }
}

MountExecutor::~MountExecutor() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  for (const auto& pool : pools_) pool->more.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::int64_t MountExecutor::now_ns() const {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void MountExecutor::run(std::size_t pool, std::vector<Task> tasks, Done done) {
  const auto batch = new_batch(tasks.size(), std::move(done));
  if (batch == nullptr) return;
  const std::lock_guard lock(mutex_);
  ++batches_;
  for (Task& task : tasks) {
    pools_[pool]->queue.push_back(QueuedTask{std::move(task), batch});
    pools_[pool]->more.notify_one();
  }
}

void MountExecutor::after(std::int64_t delay_ns, std::function<void()> call) {
  timers_.push(Timer{now_ns() + delay_ns, ++timer_number_, std::move(call)});
}

void MountExecutor::run_all() {
  while (const Call call = next_call()) call();
}

// Null: nothing will happen any more.
MountExecutor::Call MountExecutor::next_call() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!ready_.empty()) {
      Call call = std::move(ready_.front());
      ready_.pop_front();
      return call;
    }
    if (timers_.empty()) {
      if (batches_ == 0) return nullptr;
      changed_.wait(lock);
      continue;
    }
    const std::int64_t wait_ns = timers_.top().time_ns - now_ns();
    if (wait_ns <= 0) {
      Call call = timers_.top().call;
      timers_.pop();
      return call;
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
  }
}

void MountExecutor::work(Pool& pool) {
  std::unique_lock lock(mutex_);
  while (true) {
    pool.more.wait(lock, [&] { return ending_ || !pool.queue.empty(); });
    if (ending_) return;
    const QueuedTask task = std::move(pool.queue.front());
    pool.queue.pop_front();
    lock.unlock();
    const std::vector<BlockId> hits = perform(task.task);
    lock.lock();
    Batch& batch = *task.batch;
    batch.hits.insert(batch.hits.end(), hits.begin(), hits.end());
    if (--batch.tasks_left > 0) continue;
    --batches_;
    ready_.emplace_back([done = task.batch] { done->done(done->hits); });
    changed_.notify_one();
  }
}

std::vector<BlockId> MountExecutor::perform(const Task& task) {
  std::vector<BlockId> hits;
  for (const BlockId block : task.blocks) {
    if (task.op == Op::kStore) {
      store(block);
      continue;
    }
    const bool asks = kernel_asks(block);
    bool hit = true;
    if (task.op == Op::kProbe) {
      hit = files_.probe(block);
    } else {
      hit = files_.load(block);
      if (!hit) ++lost_;
    }
    if (asks) {
      kernel_knows(block);
      watcher_.looked_up(block);
    }
    if (hit) hits.push_back(block);
    if (!hit && task.stop_at_miss) break;
  }
  return hits;
}

void MountExecutor::store(BlockId block) {
  bool asks = false;
  files_.store(block, [&] {
    if (!kernel_asks(block)) return;
    asks = true;
    kernel_knows(block);
  });
  kernel_knows(block);  // from the create of the temporary on
  if (asks) watcher_.looked_up(block);
  watcher_.published(block);
}

bool MountExecutor::kernel_asks(BlockId block) const {
  return now_ns() >= known_until_ns_[block].load(std::memory_order_relaxed);
}

void MountExecutor::kernel_knows(BlockId block) {
  known_until_ns_[block].store(now_ns() + entry_timeout_ns_, std::memory_order_relaxed);
}

}  // namespace kvcachefs::sim
