// The workers of each ring's thread, for what changes something. They run on the CPUs of that
// thread, which is the caller's own: waking one on a CPU that is at rest costs more than the
// call.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/base/fair_pool.h"

namespace kvcachefs {

class ChangePools {
 public:
  // Of the ring that this thread serves; made with the first call. Null: no thread is to be
  // had.
  [[nodiscard]] FairPool* of_this_thread() noexcept;
  // Of all threads that read /dev/fuse: for what these do not do themselves. Null: as above.
  [[nodiscard]] FairPool* of_readers() noexcept;
  // As FairPool::drain(), of all.
  void drain();

 private:
  // Each waits as long as its disk takes no writes: those of one user for one disk must leave
  // some for his calls on another.
  static constexpr FairPool::Limits kThreads{.each = 4, .most = 128, .queue = 65'536};

  // Null: no thread is to be had.
  FairPool* make() noexcept;

  std::mutex mutex_;                              // a leaf
  std::vector<std::unique_ptr<FairPool>> pools_;  // under mutex_; none goes before the end
  std::mutex making_;                             // held while the next is made
  std::atomic<FairPool*> of_readers_{nullptr};
};

}  // namespace kvcachefs
