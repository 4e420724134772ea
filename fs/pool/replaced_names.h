// Names that this node has given other bytes on the pool not long ago, and that another may replace at the same moment: both
// have seen the same file under the name, so neither says that the other's is gone. Whoever hears that another has published
// such a name asks the pool which of them stands.
//
// Bounded, and forgotten in the order in which they were begun. Any thread; the lock is a leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "metadata/record.h"

namespace kvcachefs {

class ReplacedNames {
 public:
  static constexpr std::size_t kMost = 1024;

  // Before the name is taken.
  void begin(std::uint64_t path_hash, InodeNumber inode) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = names_.insert_or_assign(path_hash, Name{.inode = inode});
    if (is_new) order_.push_back(path_hash);
    while (order_.size() > kMost) {
      names_.erase(order_.front());
      order_.pop_front();
    }
  }
  // What this node has under it.
  [[nodiscard]] std::optional<InodeNumber> find(std::uint64_t path_hash) const {
    const std::lock_guard lock(mutex_);
    const auto at = names_.find(path_hash);
    if (at == names_.end()) return std::nullopt;
    return at->second.inode;
  }
  // Another has published it.
  void doubt(std::uint64_t path_hash) {
    const std::lock_guard lock(mutex_);
    if (const auto at = names_.find(path_hash); at != names_.end())
      at->second.is_doubted = true;
  }
  // Whether another has since begin().
  [[nodiscard]] bool is_doubted(std::uint64_t path_hash) const {
    const std::lock_guard lock(mutex_);
    const auto at = names_.find(path_hash);
    return at != names_.end() && at->second.is_doubted;
  }

 private:
  struct Name {
    InodeNumber inode = 0;
    bool is_doubted = false;
  };

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Name> names_;
  std::deque<std::uint64_t> order_;
};

}  // namespace kvcachefs
