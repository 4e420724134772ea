#include "fs/fuse/change_pools.h"

namespace kvcachefs {

FairPool& ChangePools::of_this_thread() {
  // A ring's thread serves one session, all its life.
  thread_local FairPool* own = nullptr;
  if (own == nullptr) {
    auto made = std::make_unique<FairPool>("kv-change", kThreads);
    own = made.get();
    const std::lock_guard lock(mutex_);
    pools_.push_back(std::move(made));
  }
  return *own;
}

void ChangePools::drain() {
  std::vector<FairPool*> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& pool : pools_) all.push_back(pool.get());
  }
  for (FairPool* pool : all) pool->drain();
}

}  // namespace kvcachefs
