// The one thread that tells the kernel what no longer holds.
//
// A notification takes locks in the kernel that a request in flight may hold, so whoever sends
// one may wait for another handler: never a handler itself, never somebody with a lock.
// Handlers only leave a message here.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "metadata/record.h"

namespace kvcachefs {

struct Notification {
  InodeNumber inode = 0;  // the parent, when a name is meant
  std::string name;       // empty: the attributes of the inode
  bool pages = false;     // and its pages
  // Not 0: what the kernel remembers of the directory's names, and the ticket of the message.
  std::uint64_t listing = 0;
  bool operator==(const Notification&) const = default;
};

class Notifier {
 public:
  // More than this wait only when the kernel is stuck; then the oldest is dropped, and the
  // kernel believes what it has cached until that times out (seconds).
  static constexpr std::size_t kQueueLimit = 4096;

  explicit Notifier(std::function<void(const Notification&)> send);
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  // Before start() there is no kernel that could have cached anything: messages are dropped.
  void start();
  // Sends what is queued, then ends the thread.
  void stop();

  // Never waits. A message that is queued already is not queued twice in a row.
  void post(Notification notification);

  [[nodiscard]] std::uint64_t dropped() const noexcept {
    return dropped_.load(std::memory_order_relaxed);
  }

 private:
  void run();

  const std::function<void(const Notification&)> send_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Notification> queue_;
  bool running_ = false;
  bool ending_ = false;
  std::atomic<std::uint64_t> dropped_{0};
  std::thread thread_;
};

}  // namespace kvcachefs
