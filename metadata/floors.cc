#include "metadata/floors.h"

#include <algorithm>
#include <utility>

namespace kvcachefs {

Floors::Writing::Writing(Floors& floors, std::vector<Entry> entries)
    : floors_(floors), entries_(std::move(entries)) {
  for (const Entry& entry : entries_) {
    Shard& shard = floors_.shard_of(entry.owner);
    const std::lock_guard lock(shard.mutex);
    shard.writing.push_back(entry);
    if (const auto floor = shard.floors.find(entry.owner); floor != shard.floors.end()) {
      floor->second = std::min(floor->second, entry.number);
    }
    for (Walk* walk : shard.walks) {
      if (walk->owner_ == entry.owner) {
        walk->lowest_written_ = std::min(walk->lowest_written_, entry.number);
      }
    }
  }
}

Floors::Writing::~Writing() {
  for (const Entry& entry : entries_) {
    Shard& shard = floors_.shard_of(entry.owner);
    const std::lock_guard lock(shard.mutex);
    const auto same = [&entry](const Entry& other) {
      return other.owner == entry.owner && other.number == entry.number;
    };
    const auto found = std::find_if(shard.writing.begin(), shard.writing.end(), same);
    *found = shard.writing.back();
    shard.writing.pop_back();
  }
}

Floors::Walk::Walk(Floors& floors, std::uint64_t owner) : floors_(floors), owner_(owner) {
  Shard& shard = floors_.shard_of(owner);
  const std::lock_guard lock(shard.mutex);
  if (const auto floor = shard.floors.find(owner); floor != shard.floors.end()) {
    floor_ = floor->second;
  }
  // A write that began before this walk may become visible behind its back.
  for (const Entry& entry : shard.writing) {
    if (entry.owner == owner) lowest_written_ = std::min(lowest_written_, entry.number);
  }
  shard.walks.push_back(this);
}

Floors::Walk::~Walk() {
  Shard& shard = floors_.shard_of(owner_);
  const std::lock_guard lock(shard.mutex);
  shard.walks.erase(std::find(shard.walks.begin(), shard.walks.end(), this));
}

void Floors::Walk::remember(std::uint64_t first) {
  Shard& shard = floors_.shard_of(owner_);
  const std::lock_guard lock(shard.mutex);
  if (shard.floors.size() >= kFloorsPerShard) shard.floors.clear();
  shard.floors[owner_] = std::min(first, lowest_written_);
}

}  // namespace kvcachefs
