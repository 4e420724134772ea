// The workers of calls that may wait for a disk: for each disk its own, so that one that does
// not answer holds up the calls on its own files alone, and some for calls that are of none.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/base/fair_pool.h"

namespace kvcachefs {

class SlowCalls {
 public:
  explicit SlowCalls(std::size_t disks);

  // `disk` is an index of Volume::disk_of(); of those that came later than this the workers are
  // the same as of none.
  [[nodiscard]] FairPool& of(std::optional<std::uint32_t> disk) noexcept;
  // As FairPool::drain(), of all.
  void drain();

 private:
  std::vector<std::unique_ptr<FairPool>> pools_;  // by disk; the last: of none
};

}  // namespace kvcachefs
