// What the sessions to one NFS server know of its directories: their handles, so that a path is not walked anew with each
// request, nor by each session for itself.
//
// Handles are believed for a while: servers know a directory that was renamed by the same one. They belong to one root; when
// a session has another, the pool's directory was made anew, and what was known goes. Bounded. Any thread; the lock is a leaf.
#pragma once

#include <chrono>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "backend/pool/nfs_file.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"

namespace kvcachefs {

// What is not the users'.
inline bool is_of_pool_itself(std::string_view path) noexcept {
  return path.substr(0, path.find('/')) == kPoolService;
}

class NfsDirectories {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMost = 4096;
  // How long a handle is taken for what stands at its path, and one that is renamed by nobody.
  static constexpr std::chrono::seconds kTrusted{2};
  static constexpr std::chrono::seconds kTrustedOfPool{60};

  // Paths are below the directory with the handle `root`, as in all calls.
  std::optional<NfsHandle> find(const NfsHandle& root, std::string_view path) const {
    const auto trusted = is_of_pool_itself(path) ? kTrustedOfPool : kTrusted;
    const std::lock_guard lock(mutex_);
    if (root != root_) return std::nullopt;
    const auto known = known_.find(std::string(path));
    if (known == known_.end() || Clock::now() - known->second.since >= trusted)
      return std::nullopt;
    return known->second.handle;
  }
  // `since`: when the server was asked for it.
  void put(const NfsHandle& root, std::string_view path, const NfsHandle& handle,
           Clock::time_point since) {
    const std::lock_guard lock(mutex_);
    if (root != root_) known_.clear();
    if (known_.size() >= kMost) {
      // Those of the pool's own are few, and asked for with each file.
      for (auto one = known_.begin(); one != known_.end();)
        one = is_of_pool_itself(one->first) ? std::next(one) : known_.erase(one);
      if (known_.size() >= kMost) known_.clear();
    }
    root_ = root;
    known_[std::string(path)] = {.handle = handle, .since = since};
  }
  // It leads to nothing any more; neither may those above it.
  void forget(const NfsHandle& root, std::string_view path) {
    const std::lock_guard lock(mutex_);
    if (root != root_) return;
    for (; !path.empty(); path = split_pool_path(path).first) known_.erase(std::string(path));
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    known_.clear();
  }

 private:
  struct Known {
    NfsHandle handle;
    Clock::time_point since;
  };

  mutable std::mutex mutex_;
  NfsHandle root_;
  std::unordered_map<std::string, Known> known_;
};

}  // namespace kvcachefs
