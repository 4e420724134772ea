// Takes away on the pool what was taken away here, and tells the others. A part of write-back: what is to go is a table of the
// catalog (tombstones), so that a restart goes on with it.
//
// Of one thread, which starts others for the calls; the counts are for any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "backend/pool/pool_service.h"
#include "fs/node/core.h"
#include "fs/pool/put_off.h"
#include "fs/pool/work_left.h"

namespace kvcachefs {

class NameRemover {
 public:
  NameRemover(Core& core, PoolService& service) : core_(core), service_(service) {}

  void begin_round() { walk_.begin_round(); }
  // Takes some names away, and goes on behind them the next time. Errors: those that are the pool's (pool_error.h), EIO,
  // EBADMSG.
  Result<WorkLeft> step(const std::function<bool()>& is_stopping);
  [[nodiscard]] std::uint64_t removed() const noexcept { return removed_.load(); }
  [[nodiscard]] std::uint64_t failed() const noexcept { return failed_.load(); }

 private:
  static constexpr std::size_t kBatch = 256;
  static constexpr std::size_t kAtOnce = 4;
  static constexpr std::chrono::milliseconds kCallDeadline{5000};

  // False: not now. Any thread, as the next two.
  Result<bool> remove(const std::string& path, const Tombstone& tombstone);
  Result<bool> put_off(const std::string& path, const Error& error);
  Result<bool> has_more_below(const std::string& directory);

  Core& core_;
  PoolService& service_;
  PutOff put_off_;  // by the hash of the path
  WalkInParts<std::string> walk_;
  std::atomic<std::uint64_t> removed_{0};
  std::atomic<std::uint64_t> failed_{0};
};

}  // namespace kvcachefs
