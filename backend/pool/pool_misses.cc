#include "backend/pool/pool_misses.h"

#include <algorithm>

namespace kvcachefs {
namespace {

// Of one hash, in its shard: this place and its neighbour.
std::size_t first_place(std::uint64_t path_hash, std::size_t places) noexcept {
  return static_cast<std::size_t>(path_hash >> 10) % (places / 2) * 2;
}

}  // namespace

PoolMisses::PoolMisses(std::size_t entries) {
  const std::size_t each = std::max<std::size_t>(entries / kShards / 2, 1) * 2;
  for (Shard& shard : shards_) shard.entries.resize(each);
}

const PoolMisses::Shard& PoolMisses::shard_of(std::uint64_t path_hash) const {
  return shards_[path_hash % kShards];
}
PoolMisses::Shard& PoolMisses::shard_of(std::uint64_t path_hash) {
  return shards_[path_hash % kShards];
}

std::uint64_t PoolMisses::before_asking(std::uint64_t path_hash) const {
  const Shard& shard = shard_of(path_hash);
  const std::lock_guard lock(shard.mutex);
  return shard.changes;
}

bool PoolMisses::is_current(std::uint64_t path_hash, std::uint64_t ticket) const {
  return before_asking(path_hash) == ticket;
}

void PoolMisses::missed(std::uint64_t path_hash, std::uint64_t ticket, std::int64_t until_ns) {
  Shard& shard = shard_of(path_hash);
  const std::lock_guard lock(shard.mutex);
  if (shard.changes != ticket) return;
  const std::size_t at = first_place(path_hash, shard.entries.size());
  Entry& one = shard.entries[at];
  Entry& other = shard.entries[at + 1];
  Entry& old = one.path_hash == path_hash       ? one
               : other.path_hash == path_hash   ? other
               : one.until_ns <= other.until_ns ? one
                                                : other;
  old = {.path_hash = path_hash, .until_ns = until_ns};
}

bool PoolMisses::holds(std::uint64_t path_hash, std::int64_t now_ns) const {
  const Shard& shard = shard_of(path_hash);
  const std::lock_guard lock(shard.mutex);
  const std::size_t at = first_place(path_hash, shard.entries.size());
  return std::any_of(shard.entries.begin() + static_cast<std::ptrdiff_t>(at),
                     shard.entries.begin() + static_cast<std::ptrdiff_t>(at + 2),
                     [&](const Entry& entry) {
                       return entry.path_hash == path_hash && entry.until_ns > now_ns;
                     });
}

void PoolMisses::forget(std::uint64_t path_hash) {
  Shard& shard = shard_of(path_hash);
  const std::lock_guard lock(shard.mutex);
  ++shard.changes;
  const std::size_t at = first_place(path_hash, shard.entries.size());
  for (std::size_t i = at; i < at + 2; ++i)
    if (shard.entries[i].path_hash == path_hash) shard.entries[i] = {};
}

void PoolMisses::forget_all() {
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    ++shard.changes;
    std::fill(shard.entries.begin(), shard.entries.end(), Entry{});
  }
}

}  // namespace kvcachefs
