// How many descriptors of backing files the daemon keeps for what users have open: a process
// has so many and no more, and the database, the sealer and others' files need some, too.
//
// All users together have a quarter of the process's, and beyond that each his part
// (user_bytes.h); three quarters in any case. Whoever has no more still has his files: each call
// opens the backing file anew.
//
// Any thread; the lock is a leaf.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>

#include "fs/budget/user_bytes.h"

namespace kvcachefs {

class DescriptorBound {
 public:
  // Of the process: RLIMIT_NOFILE.
  explicit DescriptorBound(std::uint64_t limit) : hard_(limit / 4 * 3) {
    kept_.most = limit / 4;
  }

  // Whether another one may be kept for the user. Then give_back() is called once.
  [[nodiscard]] bool take(uid_t user) {
    const std::lock_guard lock(mutex_);
    if (kept_.bytes >= hard_ || !kept_.lets_in(user, 1)) return false;
    kept_.add(user, 1);
    return true;
  }
  void give_back(uid_t user) {
    const std::lock_guard lock(mutex_);
    kept_.take(user, 1);
  }
  [[nodiscard]] std::uint64_t kept() const {
    const std::lock_guard lock(mutex_);
    return kept_.bytes;
  }

  // Of the process as it is now.
  [[nodiscard]] static std::uint64_t limit_of_process() noexcept;

 private:
  const std::uint64_t hard_;
  mutable std::mutex mutex_;
  UserBytes kept_;  // under mutex_; a descriptor is a byte
};

}  // namespace kvcachefs
