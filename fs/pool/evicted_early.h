// Files that the pool has evicted before this node had recorded their publication. Their bytes
// stay here; those of a file that was removed there meanwhile go, and both look alike to who
// records: what it noted is not noted any more.
//
// Bounded, and forgotten in the order in which they were noted. Any thread; the lock is a leaf.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

namespace kvcachefs {

class EvictedEarly {
 public:
  // More than are on their way at once.
  static constexpr std::size_t kMost = 1024;

  // Before its copy on the pool is forgotten.
  void note(std::uint64_t path_hash, std::uint64_t fileid) {
    const std::lock_guard lock(mutex_);
    files_.emplace_back(path_hash, fileid);
    if (files_.size() > kMost) files_.pop_front();
  }
  // Whether it was noted; it is forgotten then.
  bool take(std::uint64_t path_hash, std::uint64_t fileid) {
    const std::lock_guard lock(mutex_);
    const auto at = std::find(files_.begin(), files_.end(), std::pair(path_hash, fileid));
    if (at == files_.end()) return false;
    files_.erase(at);
    return true;
  }

 private:
  std::mutex mutex_;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> files_;
};

}  // namespace kvcachefs
