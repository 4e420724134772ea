// How long the queue of what is to be published may get: in bytes of files, and in files. What is too much is taken from its
// end: blocks that can be computed again and that come late in their chains. They are skipped, and counted; they stay here
// like what a mount without a pool has.
//
// A file whose name is no block's always stays: the pool would have an older one for its name. So does what is to be kept.
// Both are bounded by the budget alone. Directories do not count, and always stay: no more wait than there are here.
// With --pool-sync pool nothing is skipped: an fsync has to say what is there.
//
// The publisher's thread alone calls keep() and emptied(); the counts are for any thread. The queue is looked at at most once a second, and
// for a tenth of the time at most; what is stored between two looks is beyond the bound.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "fs/node/core.h"
#include "fs/pool/put_off.h"

namespace kvcachefs {

class QueueBound {
 public:
  // `put_off`: the files of the queue that could not be published.
  QueueBound(Core& core, PutOff& put_off) : core_(core), put_off_(put_off) {}

  // Errors: EIO, EBADMSG, ENOSPC of the catalog; the next call goes on.
  Result<void> keep();

  // All that was in the queue has been published.
  void emptied() noexcept {
    files_.store(0);
    bytes_.store(0);
  }

  // As of the last look.
  [[nodiscard]] std::uint64_t files() const noexcept { return files_.load(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(); }
  // Since the start.
  [[nodiscard]] std::uint64_t skipped() const noexcept { return skipped_.load(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kBetween{1};
  static constexpr std::size_t kBatch = 4096;

  Result<void> look();
  Result<bool> skip(InodeNumber number);

  Core& core_;
  PutOff& put_off_;
  Clock::time_point next_ = {};
  bool is_over_ = false;  // at the last look
  std::atomic<std::uint64_t> files_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> skipped_{0};
};

}  // namespace kvcachefs
