#include "fs/evict/lru_policy.h"

namespace kvcachefs {

using What = order::Note::What;

void LruPolicy::observe(const order::Note& note) {
  const std::lock_guard lock(mutex_);
  if (note.what == What::kHit || note.what == What::kLoaded || note.what == What::kStored)
    use(note.name);
  if (note.what == What::kRemoved) remove(note.name);
  if (note.what == What::kGrouped) set_group(note.name, note.group);
}

std::vector<order::Victim> LruPolicy::victims(order::Group group, std::size_t limit,
                                              const std::optional<order::Victim>& after) {
  const std::lock_guard lock(mutex_);
  std::vector<order::NameIndex> lowest;
  if (after) {
    const order::Position position{after->key.stamp, after->key.birth, after->name};
    orders_.of(group).lowest(limit, &position, lowest);
  } else {
    orders_.of(group).lowest(limit, nullptr, lowest);
  }
  std::vector<order::Victim> victims;
  victims.reserve(lowest.size());
  for (const order::NameIndex index : lowest)
    victims.push_back({names_[index].name, {names_[index].stamp(), 0}});
  return victims;
}

void LruPolicy::raise(std::uint64_t name, std::uint64_t stamp) {
  const std::lock_guard lock(mutex_);
  const order::NameIndex index = names_.find(name);
  if (index == order::kNoName || names_[index].stamp() >= stamp) return;
  orders_.remove(index);
  names_[index].set_stamp(stamp);
  orders_.insert(index);
}

std::optional<order::EvictionKey> LruPolicy::key_of(std::uint64_t name) {
  const std::lock_guard lock(mutex_);
  const order::NameIndex index = names_.find(name);
  if (index == order::kNoName) return std::nullopt;
  return order::EvictionKey{names_[index].stamp(), 0};
}

void LruPolicy::use(std::uint64_t name) {
  order::NameIndex index = names_.find(name);
  if (index != order::kNoName) {
    orders_.remove(index);
  } else {
    index = names_.insert(name);
    if (index == order::kNoName) return;
    names_[index].stored = 1;
  }
  names_[index].set_stamp(++uses_);
  orders_.insert(index);
}

void LruPolicy::set_group(std::uint64_t name, order::Group group) {
  const order::NameIndex index = names_.find(name);
  if (index != order::kNoName) orders_.set_group(index, group);
}

void LruPolicy::remove(std::uint64_t name) {
  const order::NameIndex index = names_.find(name);
  if (index == order::kNoName) return;
  orders_.remove(index);
  names_.erase(index);
}

}  // namespace kvcachefs
