// Stage-in from the pool: who looks a block up will probably load it, and the blocks after it that he looks up next.
// What is found on the pool alone is fetched in the background, in the order of the lookups; an open that comes
// meanwhile waits for the same fetch.
//
// Bounds: kThreads files at a time, which leaves the pool's other loads to opens; kMostWaiting blocks wait, and none
// longer than a lease; nothing is fetched to a device that is short of room.
//
// Any thread; the lock is a leaf.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "fs/pool/pool_files.h"

namespace kvcachefs {

class PoolStager {
 public:
  PoolStager(Core& core, PoolFiles& files) : core_(core), files_(files) {}
  ~PoolStager() { stop(); }
  PoolStager(const PoolStager&) = delete;
  PoolStager& operator=(const PoolStager&) = delete;

  void start();
  // Waits for the files that are being fetched.
  void stop();
  // A lookup by somebody who may load it has found a block on the pool alone. Queues and returns.
  void found(Inode& inode);
  // Whether none waits for its turn.
  [[nodiscard]] bool is_idle() const {
    const std::lock_guard lock(mutex_);
    return waiting_.empty();
  }

 private:
  static constexpr int kThreads = 2;
  static constexpr std::size_t kMostWaiting = 8192;
  // Runtimes ask again while a request waits.
  static constexpr std::int64_t kSameHint = 5'000'000'000;

  struct Hint {
    InodeNumber inode = 0;
    std::int64_t since = 0;
  };

  void run();
  void fetch(const Hint& hint);
  [[nodiscard]] bool has_room() const;

  Core& core_;
  PoolFiles& files_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;  // under mutex_, as the next
  std::deque<Hint> waiting_;
  std::vector<std::thread> threads_;
};

}  // namespace kvcachefs
