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

  // From here on messages are queued: before it no kernel could have cached anything.
  void accept();
  // Sends them from here on. The kernel gives up attributes of which a message comes while it
  // asks for them, and of a new mount's root it has no others: who asked would get EACCES
  // (fuse_change_attributes_i, fs/fuse/inode.c). So call this once the root's are known.
  void start();
  // Sends what is queued, then ends the thread. Without start() what is queued is dropped.
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
  bool accepting_ = false;
  bool running_ = false;
  std::atomic<std::uint64_t> dropped_{0};
  std::thread thread_;
};

}  // namespace kvcachefs
