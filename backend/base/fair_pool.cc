#include "backend/base/fair_pool.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace kvcachefs {

FairPool::FairPool(const std::string& name, const Limits& limits)
    : name_(name.substr(0, 15)), limits_(limits) {
  threads_.reserve(limits.most);
  has_cpus_ = ::sched_getaffinity(0, sizeof cpus_, &cpus_) == 0;
  // The first is there from the start: later ones may not be to be had.
  const std::lock_guard lock(mutex_);
  ++resting_;
  threads_.emplace_back([this] { run(); });
  pthread_setname_np(threads_.back().native_handle(), name_.c_str());
}

FairPool::~FairPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Of many parties with work each has a smaller share of the threads, so that there is one for
// the next.
bool FairPool::may_run(const Party& party) const {
  if (party.queue.empty()) return false;
  const std::size_t share = limits_.most / std::max<std::size_t>(parties_.size(), 1);
  return party.running < std::clamp<std::size_t>(share, 1, limits_.each);
}

bool FairPool::take_turn(std::uint64_t& party) {
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    party = turns_.front();
    turns_.pop_front();
    Party& next = parties_[party];
    if (may_run(next)) {
      next.has_turn = false;
      return true;
    }
    turns_.push_back(party);
  }
  return false;
}

void FairPool::wake_one() {
  if (resting_ > 0) {
    posted_.notify_one();
    return;
  }
  const bool may = std::any_of(turns_.begin(), turns_.end(), [this](std::uint64_t party) {
    return may_run(parties_[party]);
  });
  if (may && !ending_ && threads_.size() < limits_.most) add_thread();
}

// Where no more are to be had those that are there do.
void FairPool::add_thread() {
  try {
    threads_.emplace_back([this] { run(); });
    ++resting_;  // until it has a task
    pthread_setname_np(threads_.back().native_handle(), name_.c_str());
  } catch (const std::system_error&) {
  }
}

bool FairPool::try_post(std::uint64_t party, std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_ || waiting_ >= limits_.queue) return false;
    Party& own = parties_[party];
    own.queue.push_back(std::move(task));
    ++waiting_;
    if (!std::exchange(own.has_turn, true)) turns_.push_back(party);
    wake_one();
  }
  return true;
}

void FairPool::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return waiting_ == 0 && running_ == 0; });
}

std::size_t FairPool::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

std::size_t FairPool::threads() const {
  const std::lock_guard lock(mutex_);
  return threads_.size();
}

void FairPool::run() {
  // The thread that needed this one may be bound to one CPU.
  if (has_cpus_) ::sched_setaffinity(0, sizeof cpus_, &cpus_);
  std::unique_lock lock(mutex_);
  for (;; ++resting_) {
    std::uint64_t number = 0;
    posted_.wait(lock, [&] { return take_turn(number) || (ending_ && waiting_ == 0); });
    --resting_;
    const auto at = parties_.find(number);
    if (at == parties_.end() || at->second.queue.empty()) return;
    Party& party = at->second;
    std::function<void()> task = std::move(party.queue.front());
    party.queue.pop_front();
    --waiting_;
    ++party.running;
    ++running_;
    if (!party.queue.empty()) {
      party.has_turn = true;
      turns_.push_back(number);
    }
    // One that was woken for two, or for more since there are fewer parties, wakes the next.
    if (waiting_ != 0) wake_one();
    lock.unlock();
    task();
    task = nullptr;  // what it holds ends outside the lock
    lock.lock();
    --running_;
    // References to elements of the table outlive what is put into it.
    if (--party.running == 0 && party.queue.empty()) parties_.erase(number);
    if (ending_ && waiting_ == 0) posted_.notify_all();
    if (waiting_ == 0 && running_ == 0) idle_.notify_all();
  }
}

}  // namespace kvcachefs
