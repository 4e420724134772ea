// What could not be done for a reason of its own, and is tried again after a pause that grows with each try, so that what
// is behind it does not wait for it.
//
// Any thread; the lock is a leaf.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace kvcachefs {

class PutOff {
 public:
  static constexpr std::size_t kMost = 65'536;
  static constexpr std::int64_t kFirstPause = 1'000'000'000;  // nanoseconds, as the next
  static constexpr std::int64_t kLongestPause = 120'000'000'000;

  // kFull: too many wait for it to be a matter of each of them.
  enum class Noted : std::uint8_t { kFirst, kAgain, kFull };

  // It could not be done. `now`: monotonic, nanoseconds.
  Noted note(std::uint64_t key, std::int64_t now) {
    const std::lock_guard lock(mutex_);
    const auto known = waiting_.find(key);
    if (known != waiting_.end()) {
      known->second.pause = std::min(2 * known->second.pause, kLongestPause);
      known->second.until = now + known->second.pause;
      return Noted::kAgain;
    }
    if (waiting_.size() >= kMost) return Noted::kFull;
    waiting_.emplace(key, Wait{.pause = kFirstPause, .until = now + kFirstPause});
    return Noted::kFirst;
  }
  // Not yet to be tried again.
  [[nodiscard]] bool holds(std::uint64_t key, std::int64_t now) const {
    const std::lock_guard lock(mutex_);
    const auto known = waiting_.find(key);
    return known != waiting_.end() && now < known->second.until;
  }
  // It is done, or need not be done any more.
  void forget(std::uint64_t key) {
    const std::lock_guard lock(mutex_);
    waiting_.erase(key);
  }

 private:
  struct Wait {
    std::int64_t pause = 0;
    std::int64_t until = 0;
  };

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Wait> waiting_;
};

}  // namespace kvcachefs
