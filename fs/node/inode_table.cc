#include "fs/node/inode_table.h"

#include <algorithm>
#include <thread>
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
    if (inode->record.nlink == 0 && shard.lookups.count(inode->number) > 0 &&
        !inode->disowned) {
      // Nobody uses it, but the kernel may come back to it: it stays until it is forgotten.
      const InodePtr again(inode, [this](Inode* last) { gone(last); });
      shard.inodes[inode->number] = again;
      shard.nameless[inode->number] = again;
      return;
    }
    const auto standing = shard.inodes.find(inode->number);
    // A new object may stand there already: get() makes one as soon as this one has expired.
    if (standing != shard.inodes.end() && standing->second.expired())
      shard.inodes.erase(standing);
    ++shard.departures;
  }
  size_.fetch_sub(1, std::memory_order_relaxed);
  unreferenced_(*inode);
  delete inode;
}

InodePtr InodeTable::find(InodeNumber number) {
  Shard& shard = shard_of(number);
  const std::lock_guard lock(shard.mutex);
  const auto standing = shard.inodes.find(number);
  return standing == shard.inodes.end() ? nullptr : standing->second.lock();
}

bool InodeTable::holds(InodeNumber number) {
  Shard& shard = shard_of(number);
  const std::lock_guard lock(shard.mutex);
  return shard.inodes.count(number) > 0;
}

Result<InodePtr> InodeTable::get(InodeNumber number) {
  Shard& shard = shard_of(number);
  // Each round but the last saw an inode of this shard leave during one database read; an end
  // is certain because that many departures in a row make room for us to win.
  for (;;) {
    InodePtr inode;  // released after the shard's lock
    std::uint64_t departures = 0;
    bool known_to_kernel = false;
    {
      const std::lock_guard lock(shard.mutex);
      departures = shard.departures;
      const auto standing = shard.inodes.find(number);
      if (standing != shard.inodes.end()) {
        inode = standing->second.lock();
        known_to_kernel = shard.lookups.count(number) > 0;
      }
    }
    if (inode != nullptr) {
      if (inode->disowned.load(std::memory_order_acquire))
        return fail(ESTALE, "it has no name");
      return inode;
    }
    std::optional<InodeRecord> record = TRY(catalog_.find_inode(number));
    if (!record || record->nlink == 0) {
      // Its last user lets go of it at this moment, and gone() is about to keep it.
      if (record && known_to_kernel) {
        std::this_thread::yield();
        continue;
      }
      return fail(ESTALE, "no such inode");
    }
    const InodePtr made = wrap(std::make_unique<Inode>(number, std::move(*record)));
    const std::lock_guard lock(shard.mutex);
    std::weak_ptr<Inode>& place = shard.inodes[number];
    if (InodePtr standing = place.lock()) return standing;
    if (shard.departures != departures) {
      continue;
    }
    place = made;
    return made;
  }
}

InodePtr InodeTable::insert(InodeNumber number, InodeRecord record) {
  InodePtr made = wrap(std::make_unique<Inode>(number, std::move(record)));
  Shard& shard = shard_of(number);
  const std::lock_guard lock(shard.mutex);
  // A background thread that found it in the catalog may have been first.
  std::weak_ptr<Inode>& place = shard.inodes[number];
  if (InodePtr standing = place.lock()) return standing;
  place = made;
  return made;
}

void InodeTable::add_lookup(const InodePtr& inode) {
  InodePtr pushed_out;  // released after the shard's lock
  Shard& shard = shard_of(inode->number);
  const std::lock_guard lock(shard.mutex);
  ++shard.lookups[inode->number];
  if (inode->recent_place != 0) return;
  if (shard.recent.size() < kRecent) {
    shard.recent.push_back(inode);
    inode->recent_place = static_cast<std::uint32_t>(shard.recent.size());
    return;
  }
  pushed_out = std::exchange(shard.recent[shard.oldest], inode);
  if (pushed_out) pushed_out->recent_place = 0;
  inode->recent_place = static_cast<std::uint32_t>(shard.oldest + 1);
  shard.oldest = (shard.oldest + 1) % kRecent;
}

bool InodeTable::forget(InodeNumber number, std::uint64_t lookups) {
  // Released after the shard's lock.
  InodePtr inode;
  InodePtr recent;
  InodePtr nameless;
  Shard& shard = shard_of(number);
  const std::lock_guard lock(shard.mutex);
  const auto counted = shard.lookups.find(number);
  if (counted == shard.lookups.end()) return false;
  counted->second -= std::min(lookups, counted->second);
  if (counted->second > 0) return false;
  shard.lookups.erase(counted);
  const auto standing = shard.inodes.find(number);
  if (standing == shard.inodes.end()) return true;
  inode = standing->second.lock();
  if (inode && inode->recent_place != 0) {
    recent = std::move(shard.recent[inode->recent_place - 1]);
    inode->recent_place = 0;
  }
  if (const auto kept = shard.nameless.find(number); kept != shard.nameless.end()) {
    nameless = std::move(kept->second);
    shard.nameless.erase(kept);
  }
  return true;
}

void InodeTable::let_go(const Inode& inode) {
  InodePtr recent;  // released after the shard's lock
  Shard& shard = shard_of(inode.number);
  const std::lock_guard lock(shard.mutex);
  if (inode.recent_place != 0) recent.swap(shard.recent[inode.recent_place - 1]);
  if (recent) recent->recent_place = 0;
}

void InodeTable::clear() {
  for (Shard& shard : shards_) {
    // After the shard's lock, which letting one go takes again.
    std::vector<InodePtr> recent;
    std::unordered_map<InodeNumber, InodePtr> nameless;
    {
      const std::lock_guard lock(shard.mutex);
      shard.lookups.clear();
      for (const InodePtr& inode : shard.recent) {
        if (inode) inode->recent_place = 0;
      }
      recent.swap(shard.recent);
      nameless.swap(shard.nameless);
      shard.oldest = 0;
    }
  }
}

}  // namespace kvcachefs
