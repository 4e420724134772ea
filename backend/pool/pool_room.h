// Room on a pool for what is going to be published: who publishes waits while the pool holds all that it may, files and
// trash together, until there is room again.
//
// A pool of which nothing may go takes what is stored all the same, kPatience later: what is stored is worth more than the
// number that its size was given.
//
// Any thread; the lock is a leaf.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>

namespace kvcachefs {

class PoolRoom {
 public:
  static constexpr std::int64_t kPatience = 10'000'000'000;  // ns

  // In bytes; nullopt: there is always room.
  void set(std::optional<std::uint64_t> most) {
    const std::lock_guard lock(mutex_);
    most_ = most;
    if (!most) refusing_since_.reset();
  }

  // Takes room for `bytes` that are going to be written. `used`: what the pool holds by now; `now`: monotonic, ns. False:
  // it holds too much. One file may go beyond the limit, or one larger than the pool would wait for ever.
  [[nodiscard]] bool take(std::uint64_t bytes, std::uint64_t used, std::int64_t now) {
    const std::lock_guard lock(mutex_);
    const bool is_too_much = most_ && used + writing_ >= *most_;
    if (!is_too_much) refusing_since_.reset();
    if (is_too_much && !refusing_since_) refusing_since_ = now;
    if (is_too_much && now - *refusing_since_ < kPatience) return false;
    writing_ += bytes;
    return true;
  }
  // What was taken is counted elsewhere by now, or was not written.
  void give(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    writing_ -= std::min(bytes, writing_);
  }

 private:
  std::mutex mutex_;
  std::optional<std::uint64_t> most_;           // under mutex_, as the next
  std::uint64_t writing_ = 0;                   // bytes
  std::optional<std::int64_t> refusing_since_;  // monotonic, ns
};

}  // namespace kvcachefs
