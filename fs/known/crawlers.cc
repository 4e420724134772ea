#include "fs/known/crawlers.h"

#include <algorithm>

namespace kvcachefs {
namespace {

std::uint64_t key_of(const order::Caller& caller) noexcept {
  if (caller.process != 0) return caller.process;
  return std::uint64_t{1} << 32 | caller.tid;
}

}  // namespace

void Crawlers::listed(const order::Caller& caller, std::int64_t now_ns) {
  const std::int64_t until = now_ns + (caller.process == 0 ? kInvisibleSilence : kSilence);
  const std::lock_guard lock(mutex_);
  if (until_.size() >= kMost)
    std::erase_if(until_, [now_ns](const auto& entry) { return entry.second <= now_ns; });
  if (until_.size() < kMost || until_.count(key_of(caller)) > 0) until_[key_of(caller)] = until;
  if (until > last_until_.load(std::memory_order_relaxed))
    last_until_.store(until, std::memory_order_relaxed);
}

bool Crawlers::has(const order::Caller& caller, std::int64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  if (until_.size() >= kMost) return true;
  const auto at = until_.find(key_of(caller));
  return at != until_.end() && now_ns < at->second;
}

}  // namespace kvcachefs
