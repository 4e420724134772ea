#include "fs/pool/pool_stager.h"

#include <pthread.h>

#include "backend/base/clock.h"

namespace kvcachefs {

void PoolStager::start() {
  const std::lock_guard lock(mutex_);
  running_ = true;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads_.emplace_back([this] { run(); });
    pthread_setname_np(threads_.back().native_handle(), "kv-pool-stage");
  }
}

void PoolStager::stop() {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
    waiting_.clear();
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void PoolStager::found(Inode& inode) {
  const std::int64_t now = monotonic_now();
  std::int64_t last = inode.hinted_at.load(std::memory_order_relaxed);
  if (last != 0 && now - last < kSameHint) return;
  if (!inode.hinted_at.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (!running_ || waiting_.size() >= kMostWaiting) return;
  waiting_.push_back({.inode = inode.number, .since = now});
  changed_.notify_one();
}

void PoolStager::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !running_ || !waiting_.empty(); });
    if (!running_) return;
    const Hint hint = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    fetch(hint);
    lock.lock();
  }
}

void PoolStager::fetch(const Hint& hint) {
  if (monotonic_now() - hint.since > core_.options.budget.lease.count() || !has_room()) {
    files_.end_early_load(hint.inode);
    return;
  }
  const Result<InodePtr> inode = core_.table.get(hint.inode);
  if (!inode.ok()) return;
  {
    // Nobody has to wait for the whole of it.
    const std::lock_guard lock((*inode)->mutex);
    if (files_.is_large((*inode)->record.stamp.size)) return;
  }
  // What cannot be had is a miss for who opens it.
  static_cast<void>(files_.fetch(*inode, PoolPace::kPatient).ok());
}

bool PoolStager::has_room() const {
  for (std::size_t i = 0; i < core_.devices->count(); ++i)
    if (!core_.budget.is_short(core_.devices->index_at(i))) return true;
  return false;
}

}  // namespace kvcachefs
