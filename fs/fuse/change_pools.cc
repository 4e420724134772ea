#include "fs/fuse/change_pools.h"

#include <system_error>
#include <utility>

namespace kvcachefs {

FairPool* ChangePools::make() noexcept {
  try {
    auto made = std::make_unique<FairPool>("kv-change", kThreads);
    const std::lock_guard lock(mutex_);
    return pools_.emplace_back(std::move(made)).get();
  } catch (const std::system_error&) {  // as FairPool::add_thread()
    return nullptr;
  }
}

FairPool* ChangePools::of_this_thread() noexcept {
  // A ring's thread serves one session, all its life.
  thread_local FairPool* own = nullptr;
  if (own == nullptr) own = make();
  return own;
}

FairPool* ChangePools::of_readers() noexcept {
  if (FairPool* const made = of_readers_.load()) return made;
  const std::lock_guard lock(making_);
  if (of_readers_.load() == nullptr) of_readers_.store(make());
  return of_readers_.load();
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
