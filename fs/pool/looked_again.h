// What somebody was told to look up once more, not to be told so again at once: the kernel does it once, and gives the second
// such answer to its caller.
//
// Any thread; the lock is a leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace kvcachefs {

class LookedAgain {
 public:
  // Longer than the lookup and the second open take that follow.
  static constexpr std::int64_t kFor = 5'000'000'000;  // nanoseconds
  static constexpr std::size_t kMost = 4096;

  // False: it was said of this one in the last kFor, or of too many. `now`: monotonic, nanoseconds.
  [[nodiscard]] bool is_first(std::uint64_t path_hash, std::int64_t now) {
    const std::lock_guard lock(mutex_);
    if (said_.size() >= kMost)
      std::erase_if(said_, [now](const auto& one) { return now - one.second >= kFor; });
    const auto known = said_.find(path_hash);
    if (known != said_.end() && now - known->second < kFor) return false;
    if (known == said_.end() && said_.size() >= kMost) return false;
    said_[path_hash] = now;
    return true;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::int64_t> said_;
};

}  // namespace kvcachefs
