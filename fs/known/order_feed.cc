#include "fs/known/order_feed.h"

#include <chrono>

namespace kvcachefs {
namespace {

// Notes of this time are told together. Short against what the learner looks at: bursts end after 100 ms.
constexpr std::chrono::milliseconds kGather{10};
// Two megabytes and a half; whoever would add more tells them first.
constexpr std::size_t kMostNotes = 65536;

}  // namespace

void OrderFeed::start() {
  const std::lock_guard lock(mutex_);
  running_ = true;
  thread_ = std::thread([this] { run(); });
}

void OrderFeed::stop() {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
  }
  noted_.notify_one();
  if (thread_.joinable()) thread_.join();
  settle();
}

void OrderFeed::note(const order::Note& note) {
  bool wake = false;
  bool tell_now = false;
  {
    const std::lock_guard lock(mutex_);
    notes_.push_back(note);
    wake = asleep_;
    asleep_ = false;
    tell_now = !running_ || notes_.size() >= kMostNotes;
  }
  if (wake) noted_.notify_one();
  if (tell_now) settle();
}

void OrderFeed::settle() {
  const std::lock_guard telling(telling_mutex_);
  {
    const std::lock_guard lock(mutex_);
    notes_.swap(spare_);
  }
  for (const order::Note& note : spare_) tell(learner_, note);
  spare_.clear();
}

void OrderFeed::run() {
  std::unique_lock lock(mutex_);
  while (running_) {
    asleep_ = notes_.empty();
    noted_.wait(lock, [this] { return !notes_.empty() || !running_; });
    noted_.wait_for(lock, kGather, [this] { return !running_; });
    lock.unlock();
    settle();
    lock.lock();
  }
}

}  // namespace kvcachefs
