// How long the machine kept a thread from running that wanted to: the control of a bound on
// time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace kvcachefs::testing {

// Sleeps for 5 ms, over and over, in a thread of its own while it lives. Less than a
// millisecond too long is no loss.
class Pulse {
 public:
  using Clock = std::chrono::steady_clock;

  Pulse() : thread_([this] { run(); }) {}
  ~Pulse() {
    stopping_ = true;
    thread_.join();
  }
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // By how much its sleeps were too long so far, in all; the one that lasts is counted as well.
  [[nodiscard]] Clock::duration lost() const {
    const Clock::duration late = Clock::now() - due_.load();
    return lost_.load() + std::max(late, Clock::duration::zero());
  }

 private:
  void run() {
    while (!stopping_) {
      due_ = Clock::now() + std::chrono::milliseconds{5};
      std::this_thread::sleep_until(due_.load());  // This is what it measures.
      const Clock::duration late = Clock::now() - due_.load();
      if (late >= std::chrono::milliseconds{1}) lost_ = lost_.load() + late;
    }
  }

  std::atomic<bool> stopping_ = false;
  std::atomic<Clock::time_point> due_ = Clock::now();
  std::atomic<Clock::duration> lost_ = Clock::duration::zero();
  std::thread thread_;
};

}  // namespace kvcachefs::testing
