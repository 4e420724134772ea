#include "fs/fuse/slow_calls.h"

namespace kvcachefs {
namespace {

// Of one user enough to overlap the disk waits of many writers; they wait, they do not compute.
// Fewer wait for a thread than have been parked, which is bounded (parked_limit).
constexpr FairPool::Limits kThreads{.each = 8, .most = 32, .queue = 65'536};

}  // namespace

SlowCalls::SlowCalls(std::size_t disks) {
  for (std::size_t i = 0; i <= disks; ++i)
    pools_.push_back(std::make_unique<FairPool>("kv-slow", kThreads));
}

FairPool& SlowCalls::of(std::optional<std::uint32_t> disk) noexcept {
  const std::size_t none = pools_.size() - 1;
  return *pools_[disk && *disk < none ? *disk : none];
}

void SlowCalls::drain() {
  for (const auto& pool : pools_) pool->drain();
}

}  // namespace kvcachefs
