// The files that somebody may have mapped for stores in this run, which nobody sees: when the kernel
// has let go of the mount each is looked at once more (fs/life/recover.h, mark_clean()).
//
// Any thread; the lock is a leaf. Memory: some 40 bytes a file, kMost of them.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "metadata/record.h"

namespace kvcachefs {

class UnseenStores {
 public:
  static constexpr std::size_t kMost = 262'144;

  // It is opened for reading and writing, and the kernel serves it.
  void note(InodeNumber inode) {
    const std::lock_guard lock(mutex_);
    if (files_.size() < kMost) {
      files_.insert(inode);
    } else {
      is_whole_ = is_whole_ && files_.count(inode) > 0;
    }
  }
  [[nodiscard]] bool holds(InodeNumber inode) const {
    const std::lock_guard lock(mutex_);
    return files_.count(inode) > 0;
  }
  // False: there were more.
  [[nodiscard]] bool is_whole() const {
    const std::lock_guard lock(mutex_);
    return is_whole_;
  }
  [[nodiscard]] std::vector<InodeNumber> list() const {
    const std::lock_guard lock(mutex_);
    return {files_.begin(), files_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<InodeNumber> files_;  // under mutex_
  bool is_whole_ = true;                   // under mutex_
};

}  // namespace kvcachefs
