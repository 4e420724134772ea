#include "fs/fuse/notifier.h"

#include <pthread.h>

#include <utility>

#include "backend/base/log.h"

namespace kvcachefs {

Notifier::Notifier(std::function<void(const Notification&)> send) : send_(std::move(send)) {}

Notifier::~Notifier() { stop(); }

void Notifier::accept() {
  const std::lock_guard lock(mutex_);
  accepting_ = true;
}

void Notifier::start() {
  const std::lock_guard lock(mutex_);
  if (running_) return;
  accepting_ = true;
  running_ = true;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "kv-notifier");
}

void Notifier::stop() {
  {
    const std::lock_guard lock(mutex_);
    accepting_ = false;
    if (!running_) {
      queue_.clear();
      return;
    }
  }
  posted_.notify_one();
  thread_.join();
  const std::lock_guard lock(mutex_);
  running_ = false;
}

void Notifier::post(Notification notification) {
  {
    const std::lock_guard lock(mutex_);
    if (!accepting_) return;
    if (!queue_.empty() && queue_.back() == notification) return;
    if (queue_.size() >= kQueueLimit) {
      queue_.pop_front();
      if (dropped_.fetch_add(1, std::memory_order_relaxed) == 0) {
        log_warn(
            "notifications_dropped limit={} meaning=\"answers may be stale until they time "
            "out\"",
            kQueueLimit);
      }
    }
    queue_.push_back(std::move(notification));
  }
  posted_.notify_one();
}

void Notifier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [this] { return !accepting_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Notification next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    send_(next);
    lock.lock();
  }
}

}  // namespace kvcachefs
