#include "tests/sim/virtual_executor.h"

#include <cmath>
#include <utility>

namespace kvcachefs::sim {
namespace {

constexpr std::uint32_t kProcess = 1000;
constexpr double kSigma = 0.6;

}  // namespace

VirtualExecutor::VirtualExecutor(const Runtime& runtime, std::size_t blocks, std::uint64_t seed,
                                 std::int64_t entry_timeout_ns, CallSink sink)
    : pools_(runtime.pools.size()),
      stored_(blocks),
      looked_up_ns_(blocks),
      entry_timeout_ns_(entry_timeout_ns),
      random_(seed),
      sink_(std::move(sink)) {
  std::uint32_t tid = kProcess;
  for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
    for (std::size_t i = 0; i < runtime.pools[pool]; ++i) pools_[pool].idle.push_back(++tid);
  }
}

void VirtualExecutor::run(std::size_t pool, std::vector<Task> tasks, Done done) {
  const auto batch = new_batch(tasks.size(), std::move(done));
  if (batch == nullptr) return;
  // Threads are woken one after the other, and each takes its own time to begin.
  std::int64_t stagger = 0;
  for (Task& task : tasks) {
    auto queued = std::make_shared<QueuedTask>(QueuedTask{std::move(task), batch});
    after(stagger, [this, pool, queued] {
      pools_[pool].queue.push_back(std::move(*queued));
      dispatch(pool);
    });
    stagger += 3'000;
  }
}

void VirtualExecutor::after(std::int64_t delay_ns, std::function<void()> call) {
  events_.push(Event{now_ns_ + delay_ns, ++event_number_, std::move(call)});
}

void VirtualExecutor::run_all() {
  while (!events_.empty()) {
    const auto call = std::move(const_cast<Event&>(events_.top()).call);
    now_ns_ = events_.top().time_ns;
    events_.pop();
    call();
  }
}

void VirtualExecutor::dispatch(std::size_t pool) {
  Pool& p = pools_[pool];
  while (!p.idle.empty() && !p.queue.empty()) {
    const std::uint32_t tid = p.idle.front();
    p.idle.pop_front();
    auto task = std::make_shared<QueuedTask>(std::move(p.queue.front()));
    p.queue.pop_front();
    after(8'000 + exponential(25), [this, pool, tid, task] { step(pool, tid, task, 0); });
  }
}

void VirtualExecutor::step(std::size_t pool, std::uint32_t tid,
                           const std::shared_ptr<QueuedTask>& task, std::size_t at) {
  const std::vector<BlockId>& blocks = task->task.blocks;
  if (at == blocks.size()) {
    finish(pool, tid, *task);
    return;
  }
  const BlockId block = blocks[at];
  std::int64_t takes_ns = 0;
  std::size_t next = at + 1;
  if (task->task.op == Op::kProbe) {
    const bool hit = stored_[block];
    if (!kernel_knows(block)) {
      looked_up_ns_[block] = now_ns_;
      emit(hit ? CallType::kHit : CallType::kMiss, block, tid);
    }
    if (hit) task->batch->hits.push_back(block);
    if (!hit && task->task.stop_at_miss) next = blocks.size();
    takes_ns = 18'000 + exponential(10);
  } else if (task->task.op == Op::kLoad) {
    look_up_again(block, tid);
    emit(CallType::kLoad, block, tid);
    takes_ns = lognormal(3);
  } else {
    look_up_again(block, tid);
    looked_up_ns_[block] = now_ns_;  // a create tells the kernel as a lookup does
    emit(CallType::kStoreStart, block, tid);
    takes_ns = lognormal(4);
  }
  after(takes_ns, [this, pool, tid, task, next, block] {
    if (task->task.op == Op::kStore) {
      stored_[block] = true;
      emit(CallType::kPublished, block, tid);
    }
    step(pool, tid, task, next);
  });
}

// A thread that finds more to do goes on without sleeping.
void VirtualExecutor::finish(std::size_t pool, std::uint32_t tid, const QueuedTask& task) {
  Pool& p = pools_[pool];
  if (!p.queue.empty()) {
    auto next = std::make_shared<QueuedTask>(std::move(p.queue.front()));
    p.queue.pop_front();
    after(1'000, [this, pool, tid, next] { step(pool, tid, next, 0); });
  } else {
    p.idle.push_back(tid);
  }
  if (--task.batch->tasks_left == 0) task.batch->done(task.batch->hits);
}

std::int64_t VirtualExecutor::exponential(double mean_us) {
  std::exponential_distribution<double> distribution(1 / mean_us);
  return static_cast<std::int64_t>(distribution(random_) * 1e3);
}

std::int64_t VirtualExecutor::lognormal(double median_ms) {
  std::lognormal_distribution<double> distribution(std::log(median_ms), kSigma);
  return static_cast<std::int64_t>(distribution(random_) * 1e6);
}

void VirtualExecutor::look_up_again(BlockId block, std::uint32_t tid) {
  if (entry_timeout_ns_ == 0 || kernel_knows(block)) return;
  looked_up_ns_[block] = now_ns_;
  emit(stored_[block] ? CallType::kHit : CallType::kMiss, block, tid);
}

void VirtualExecutor::emit(CallType type, BlockId block, std::uint32_t tid) {
  sink_(Call{type, block, tid, kProcess, now_ns_});
}

}  // namespace kvcachefs::sim
