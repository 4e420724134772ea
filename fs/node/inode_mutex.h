// The mutex of an inode. It is held across commits, which take as long as their disk takes no
// writes. Whoever commits what is nothing to those who only look (a seal, a publication) lends
// it to them meanwhile, one at a time, so that a file is read while it is being recorded. They
// see it as it was, and change nothing but what is in memory of who uses it.
//
//     free ◄──► held ◄──► lent ◄──► used      lock, unlock; lend, take_back; lock_to_look, unlock
//                         (by who looks)
#pragma once

#include <atomic>
#include <cstdint>

namespace kvcachefs {

class InodeMutex {
 public:
  void lock() noexcept {
    while (!become(kFree, kHeld)) wait();
  }
  bool try_lock() noexcept { return become(kFree, kHeld); }
  // Of who looks, too.
  void unlock() noexcept {
    if (!become(kHeld, kFree)) become(kUsed, kLent);
    state_.notify_all();
  }

  void lock_to_look() noexcept {
    while (!try_lock_to_look()) wait();
  }
  bool try_lock_to_look() noexcept { return become(kFree, kHeld) || become(kLent, kUsed); }

  // The caller holds it.
  void lend() noexcept {
    become(kHeld, kLent);
    state_.notify_all();
  }
  // Waits for who looks.
  void take_back() noexcept {
    while (!become(kLent, kHeld)) state_.wait(kUsed);
  }

 private:
  static constexpr std::uint32_t kFree = 0, kHeld = 1, kLent = 2, kUsed = 3;

  bool become(std::uint32_t from, std::uint32_t to) noexcept {
    return state_.compare_exchange_strong(from, to, std::memory_order_acq_rel,
                                          std::memory_order_relaxed);
  }
  // For another state than what it is now; any may come.
  void wait() noexcept {
    if (const std::uint32_t now = state_.load(std::memory_order_relaxed); now != kFree)
      state_.wait(now, std::memory_order_relaxed);
  }

  std::atomic<std::uint32_t> state_{kFree};
};

// Lends it while it lives.
class Lent {
 public:
  explicit Lent(InodeMutex& mutex) noexcept : mutex_(mutex) { mutex_.lend(); }
  ~Lent() { mutex_.take_back(); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  InodeMutex& mutex_;
};

}  // namespace kvcachefs
