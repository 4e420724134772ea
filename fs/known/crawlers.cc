#include "fs/known/crawlers.h"

#include <algorithm>

namespace kvcachefs {
namespace {

std::uint64_t key_of(const order::Caller& caller) noexcept {
  if (caller.process != 0) return caller.process;
  return std::uint64_t{1} << 32 | caller.tid;
}

}  // namespace

std::int64_t Crawlers::Silence::end_ns() const noexcept {
  return openings > 0 ? std::max(until_ns, opening_until_ns) : until_ns;
}

Crawlers::Silence& Crawlers::silence_of(const order::Caller& caller, std::int64_t now_ns,
                                        std::int64_t until_ns) {
  const std::uint64_t key = key_of(caller);
  if (silences_.size() >= kMost && silences_.count(key) == 0) {
    // Holding a directory open for ever keeps no row.
    std::erase_if(silences_,
                  [now_ns](const auto& entry) { return entry.second.end_ns() <= now_ns; });
    if (silences_.size() >= kMost)
      silences_.erase(std::min_element(
          silences_.begin(), silences_.end(),
          [](const auto& a, const auto& b) { return a.second.end_ns() < b.second.end_ns(); }));
  }
  if (until_ns > last_until_.load(std::memory_order_relaxed))
    last_until_.store(until_ns, std::memory_order_relaxed);
  return silences_[key];
}

void Crawlers::listed(const order::Caller& caller, std::int64_t now_ns) {
  const std::int64_t until_ns = now_ns + (caller.process == 0 ? kInvisibleSilence : kSilence);
  const std::lock_guard lock(mutex_);
  Silence& silence = silence_of(caller, now_ns, until_ns);
  silence.until_ns = std::max(silence.until_ns, until_ns);
}

Crawlers::Opening Crawlers::opened(const order::Caller& caller, std::int64_t now_ns) {
  const std::int64_t until_ns = now_ns + (caller.process == 0 ? kInvisibleSilence : kSilence);
  const std::lock_guard lock(mutex_);
  Silence& silence = silence_of(caller, now_ns, until_ns);
  ++silence.openings;
  silence.opening_until_ns = std::max(silence.opening_until_ns, until_ns);
  return {.caller = caller, .until_ns = until_ns};
}

// Null: it was forgotten meanwhile.
Crawlers::Silence* Crawlers::close(const Opening& opening) {
  const auto at = silences_.find(key_of(opening.caller));
  if (at == silences_.end() || at->second.openings == 0) return nullptr;
  if (--at->second.openings == 0) at->second.opening_until_ns = 0;
  return &at->second;
}

void Crawlers::closed(const Opening& opening) {
  const std::lock_guard lock(mutex_);
  Silence* const silence = close(opening);
  if (silence != nullptr) silence->until_ns = std::max(silence->until_ns, opening.until_ns);
}

std::int64_t Crawlers::withdrawn(const Opening& opening) {
  const std::lock_guard lock(mutex_);
  const Silence* const silence = close(opening);
  return silence != nullptr ? silence->end_ns() : 0;
}

bool Crawlers::has(const order::Caller& caller, std::int64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  const auto at = silences_.find(key_of(caller));
  return at != silences_.end() && now_ns < at->second.end_ns();
}

}  // namespace kvcachefs
