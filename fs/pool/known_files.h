// What the pool has said of files that were found there not long ago, for the load that mostly follows: it begins with the
// bytes. Bounded, and forgotten in the order in which it was noted.
//
// Any thread; the lock is a leaf.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/base/clock.h"
#include "backend/pool/pool_transfer.h"
#include "fs/pool/early_load.h"
#include "metadata/record.h"

namespace kvcachefs {

class KnownFiles {
 public:
  // A record of checksums is 4 bytes for each 256 KiB of a file.
  static constexpr std::size_t kMost = 4096;
  static constexpr std::size_t kMostSums = 1024;

  struct Noted {
    PoolKnown known;
    std::unique_ptr<EarlyLoad> early = nullptr;  // of its bytes; null: none has begun
  };

  // `until`: monotonic; when it is to be asked for again.
  void note(InodeNumber inode, Noted&& noted, std::int64_t until) {
    const PoolKnown& known = noted.known;
    if (known.file == nullptr || (known.sums && known.sums->chunk_crc32c.size() > kMostSums))
      return;
    std::vector<File> gone;  // what ends with them is not done under the lock
    std::vector<std::unique_ptr<EarlyLoad>> ended;
    const std::lock_guard lock(mutex_);
    end_early_loads(monotonic_now(), ended);
    if (noted.early != nullptr) early_.push_back(inode);
    File& file = files_[inode];
    gone.push_back(std::exchange(file, File{std::move(noted), until}));
    order_.push_back(inode);
    while (order_.size() > kMost) {
      if (auto oldest = files_.extract(order_.front()))
        gone.push_back(std::move(oldest.mapped()));
      order_.pop_front();
    }
  }

  // Whether take() would give something.
  [[nodiscard]] bool holds(InodeNumber inode, std::int64_t now) const {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(inode);
    return found != files_.end() && found->second.until >= now;
  }

  // Nobody loads it now.
  void end_early_load(InodeNumber inode) {
    std::unique_ptr<EarlyLoad> ended;
    const std::lock_guard lock(mutex_);
    if (const auto found = files_.find(inode); found != files_.end())
      ended = std::move(found->second.noted.early);
  }

  // What was noted, if it still holds; it is forgotten by that.
  std::optional<Noted> take(InodeNumber inode, std::int64_t now) {
    decltype(files_)::node_type found;
    {
      const std::lock_guard lock(mutex_);
      found = files_.extract(inode);
    }
    if (found.empty() || found.mapped().until < now) return std::nullopt;
    return std::move(found.mapped().noted);
  }

 private:
  struct File {
    Noted noted;
    std::int64_t until = 0;
  };

  // Those that nobody has taken in time.
  void end_early_loads(std::int64_t now, std::vector<std::unique_ptr<EarlyLoad>>& ended) {
    for (auto number = early_.begin(); number != early_.end();) {
      const auto found = files_.find(*number);
      const bool waits = found != files_.end() && found->second.noted.early != nullptr;
      if (waits && found->second.until >= now) {
        ++number;
        continue;
      }
      if (waits) ended.push_back(std::move(found->second.noted.early));
      number = early_.erase(number);
    }
  }

  mutable std::mutex mutex_;
  std::unordered_map<InodeNumber, File> files_;
  std::vector<InodeNumber> early_;  // EarlyLoad::kMost and those that are over
  std::deque<InodeNumber> order_;   // of the notes; some were taken
};

}  // namespace kvcachefs
