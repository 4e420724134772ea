#include "fs/node/inode_table.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kvcachefs {

InodeTable::InodeTable(Catalog& catalog, Unreferenced unreferenced)
    : catalog_(catalog), unreferenced_(std::move(unreferenced)) {}

InodeTable::~InodeTable() { clear(); }

InodePtr InodeTable::wrap(std::unique_ptr<Inode> inode) {
  size_.fetch_add(1, std::memory_order_relaxed);
  return InodePtr(inode.release(), [this](Inode* last) { gone(last); });
}

void InodeTable::gone(Inode* inode) noexcept {
  {
    Shard& shard = shard_of(inode->number);
    const std::lock_guard lock(shard.mutex);
    const auto slot = shard.slots.find(inode->number);
    // A new object may stand there already: get() makes one as soon as this one has expired.
    if (slot != shard.slots.end() && slot->second.inode.expired()) shard.slots.erase(slot);
    ++shard.departures;
  }
  size_.fetch_sub(1, std::memory_order_relaxed);
  unreferenced_(*inode);
  delete inode;
}

InodePtr InodeTable::find(InodeNumber number) {
  Shard& shard = shard_of(number);
  const std::lock_guard lock(shard.mutex);
  const auto slot = shard.slots.find(number);
  return slot == shard.slots.end() ? nullptr : slot->second.inode.lock();
}

Result<InodePtr> InodeTable::get(InodeNumber number) {
  Shard& shard = shard_of(number);
  // Each round but the last saw an inode of this shard leave during one database read; an end
  // is certain because that many departures in a row make room for us to win.
  for (;;) {
    std::uint64_t departures = 0;
    {
      const std::lock_guard lock(shard.mutex);
      departures = shard.departures;
      const auto slot = shard.slots.find(number);
      if (slot != shard.slots.end()) {
        if (InodePtr inode = slot->second.inode.lock()) return inode;
      }
    }
    std::optional<InodeRecord> record = TRY(catalog_.find_inode(number));
    if (!record || record->nlink == 0) return fail(ESTALE, "no such inode");
    const InodePtr made = wrap(std::make_unique<Inode>(number, std::move(*record)));
    const std::lock_guard lock(shard.mutex);
    Slot& slot = shard.slots[number];
    if (InodePtr standing = slot.inode.lock()) return standing;
    if (shard.departures != departures) {
      continue;
    }
    slot = Slot{.inode = made, .held = nullptr, .lookups = 0};
    return made;
  }
}

InodePtr InodeTable::insert(InodeNumber number, InodeRecord record) {
  InodePtr made = wrap(std::make_unique<Inode>(number, std::move(record)));
  Shard& shard = shard_of(number);
  const std::lock_guard lock(shard.mutex);
  shard.slots[number] = Slot{.inode = made, .held = nullptr, .lookups = 0};
  return made;
}

void InodeTable::add_lookup(const InodePtr& inode) {
  Shard& shard = shard_of(inode->number);
  const std::lock_guard lock(shard.mutex);
  Slot& slot = shard.slots[inode->number];
  slot.inode = inode;
  slot.held = inode;
  ++slot.lookups;
}

void InodeTable::forget(InodeNumber number, std::uint64_t lookups) {
  InodePtr last;  // released after the shard's lock
  {
    Shard& shard = shard_of(number);
    const std::lock_guard lock(shard.mutex);
    const auto slot = shard.slots.find(number);
    if (slot == shard.slots.end()) return;
    slot->second.lookups -= std::min(lookups, slot->second.lookups);
    if (slot->second.lookups == 0) last = std::move(slot->second.held);
  }
}

void InodeTable::clear() {
  for (Shard& shard : shards_) {
    std::vector<InodePtr> released;  // after the shard's lock, which letting one go takes again
    {
      const std::lock_guard lock(shard.mutex);
      for (auto& [number, slot] : shard.slots) {
        slot.lookups = 0;
        if (slot.held) released.push_back(std::move(slot.held));
      }
    }
  }
}

}  // namespace kvcachefs
