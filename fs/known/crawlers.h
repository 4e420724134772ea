// Who lists directories: for a while after that, what a process looks up is no sign that it wants it
// (find, du, rsync).
//
// Any thread; the lock is a leaf, and not taken while nobody lists anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "fs/order/callers.h"

namespace kvcachefs {

class Crawlers {
 public:
  void listed(const order::Caller& caller, std::int64_t now_ns);
  [[nodiscard]] bool has(const order::Caller& caller, std::int64_t now_ns) const;
  // Whether has() could say yes of anybody: `caller` need not be known to ask this.
  [[nodiscard]] bool any(std::int64_t now_ns) const noexcept {
    return now_ns < last_until_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t kSilence = 60'000'000'000;
  // An invisible caller may be everybody behind it (the threads of an NFS server).
  static constexpr std::int64_t kInvisibleSilence = 1'000'000'000;
  // Beyond so many, those that are over are forgotten; should all be under way, everybody counts as one.
  static constexpr std::size_t kMost = 4096;

  std::atomic<std::int64_t> last_until_{0};
  mutable std::mutex mutex_;
  // Under mutex_. By process, and for invisible ones by thread (bit 32 is set then).
  std::unordered_map<std::uint64_t, std::int64_t> until_;
};

}  // namespace kvcachefs
