// What an answer takes when nothing waits before it: the quickest of the present half minute and of the one before.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>

namespace kvcachefs {

class Quickest {
 public:
  using Clock = std::chrono::steady_clock;

  void note(Clock::duration took, Clock::time_point now) {
    if (now - turned_ >= kFor) {
      took_ = {Clock::duration::max(), took_[0]};
      turned_ = now;
    }
    took_[0] = std::min(took_[0], took);
  }
  // Clock::duration::max(): none was noted.
  [[nodiscard]] Clock::duration value() const { return std::min(took_[0], took_[1]); }

 private:
  static constexpr std::chrono::seconds kFor{30};

  std::array<Clock::duration, 2> took_ = {Clock::duration::max(), Clock::duration::max()};
  Clock::time_point turned_{};
};

}  // namespace kvcachefs
