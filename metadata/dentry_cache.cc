#include "metadata/dentry_cache.h"

#include <functional>
#include <utility>

namespace kvcachefs {

DentryCache::Place DentryCache::place_of(std::string_view key) {
  const std::size_t hash = std::hash<std::string_view>{}(key);
  Shard& shard = shards_[hash % kShards];
  return {shard, shard.slots[hash / kShards % kSlots]};
}

DentryCache::Found DentryCache::find(std::string_view key) {
  const auto [shard, slot] = place_of(key);
  const std::lock_guard lock(shard.mutex);
  if (!slot.used || slot.key != key)
    return {.known = false, .value = {}, .version = shard.version};
  return {.known = true, .value = slot.value, .version = shard.version};
}

void DentryCache::remember(std::string_view key, const std::optional<std::string>& value,
                           std::uint64_t version) {
  const auto [shard, slot] = place_of(key);
  const std::lock_guard lock(shard.mutex);
  if (shard.version != version) return;
  slot.used = true;
  slot.key = key;
  slot.value = value;
}

DentryCache::Changing::Changing(DentryCache& cache, std::vector<std::string_view> keys)
    : cache_(cache), keys_(std::move(keys)) {
  forget_all();
}

DentryCache::Changing::~Changing() { forget_all(); }

void DentryCache::Changing::forget_all() {
  for (const std::string_view key : keys_) {
    const auto [shard, slot] = cache_.place_of(key);
    const std::lock_guard lock(shard.mutex);
    ++shard.version;
    if (slot.used && slot.key == key) slot.used = false;
  }
}

}  // namespace kvcachefs
