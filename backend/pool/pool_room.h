// Room on a pool for what is going to be published: a node waits while the pool holds all that it may, files and trash
// together, until there is room again.
//
// A node hears of what the others publish a moment later. So that all together do not exceed the room that each of them
// believes in, a node takes no more than its part of it until it has heard of the others again; one file it may always
// take.
//
// A pool on which nothing may go takes what is stored all the same, when it has not come down for kPatience: what is
// stored is worth more than the number that its size was given.
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
    if (!most) full_.reset();
  }

  // This node has heard of all that the others have published, until a moment ago. `nodes`: how many publish, with this one.
  void heard(std::uint64_t nodes) {
    const std::lock_guard lock(mutex_);
    nodes_ = std::max<std::uint64_t>(nodes, 1);
    part_.reset();
  }

  // Takes room for `bytes` that are going to be written; 0 asks whether there is any. `used`: what the pool holds by now;
  // `now`: monotonic, ns. False: it holds too much, or this node has taken its part. One file may go beyond either, or one
  // larger than the pool would wait for ever.
  [[nodiscard]] bool take(std::uint64_t bytes, std::uint64_t used, std::int64_t now) {
    const std::lock_guard lock(mutex_);
    if (!has_room(used, now)) return false;
    writing_ += bytes;
    taken_ += bytes;
    return true;
  }
  // What was taken is counted elsewhere by now, or was not written.
  void give(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    writing_ -= std::min(bytes, writing_);
  }

 private:
  struct Full {
    std::int64_t since = 0;    // monotonic, ns: it has not come down since
    std::uint64_t lowest = 0;  // bytes
  };

  // Under mutex_, as all below.
  bool has_room(std::uint64_t used, std::int64_t now) {
    if (!most_) return true;
    if (used + writing_ >= *most_) {
      if (!full_ || used < full_->lowest) full_ = Full{.since = now, .lowest = used};
      return now - full_->since >= kPatience;
    }
    full_.reset();
    if (nodes_ == 1) return true;
    if (!part_) {
      part_ = (*most_ - used - writing_) / nodes_;
      taken_ = 0;
    }
    return taken_ == 0 || taken_ < *part_;
  }

  std::mutex mutex_;
  std::optional<std::uint64_t> most_;
  std::uint64_t nodes_ = 1;
  std::uint64_t writing_ = 0;  // bytes
  std::optional<std::uint64_t>
      part_;  // bytes that may be taken until the next heard(); nullopt: not looked at
  std::uint64_t taken_ = 0;  // bytes, of part_
  std::optional<Full> full_;
};

}  // namespace kvcachefs
