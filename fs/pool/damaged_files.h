// Files on the pool whose bytes were not those of their checksums when they were loaded here. Each is a miss for a moment; and
// who stores it here again puts his own in its place, which without that would be one too many.
//
// Bounded, and forgotten in the order in which they were found. Any thread; the lock is a leaf.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "backend/pool/pool_service.h"

namespace kvcachefs {

class DamagedFiles {
 public:
  static constexpr std::size_t kMost = 4096;
  // Not each lookup loads it again. It may have been the network that damaged it.
  static constexpr std::chrono::seconds kMissFor{2};

  explicit DamagedFiles(PoolService& service) : service_(service) {}

  // The server has it under that number. Says so in the log, once for each file.
  void found(std::string_view path, std::uint64_t path_hash, std::uint64_t fileid);
  // The number of the file at the path; 0: nothing is known against it.
  [[nodiscard]] std::uint64_t at(std::uint64_t path_hash) const {
    const std::lock_guard lock(mutex_);
    const auto known = files_.find(path_hash);
    return known != files_.end() ? known->second.fileid : 0;
  }
  // It was found just now: a miss, also to who asks the server, as news of the path (that it
  // was published, which may come late) has the miss forgotten that found() notes.
  [[nodiscard]] bool is_missed(std::uint64_t path_hash, std::uint64_t fileid,
                               std::int64_t now_ns) const {
    const std::lock_guard lock(mutex_);
    const auto known = files_.find(path_hash);
    return known != files_.end() && known->second.fileid == fileid &&
           now_ns < known->second.missed_until_ns;
  }
  // Loads that came to one.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_.load(); }

 private:
  struct File {
    std::uint64_t fileid = 0;
    std::int64_t missed_until_ns = 0;
  };
  // False: it is known.
  bool note(std::uint64_t path_hash, const File& file);

  PoolService& service_;
  std::atomic<std::uint64_t> count_{0};
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, File> files_;  // under mutex_, as the next
  std::deque<std::uint64_t> order_;
};

}  // namespace kvcachefs
