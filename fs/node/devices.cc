#include "fs/node/devices.h"

#include <algorithm>

namespace kvcachefs {

Result<std::unique_ptr<Devices>> Devices::create(Catalog& catalog,
                                                 std::vector<std::unique_ptr<Tier>> tiers) {
  std::unique_ptr<Devices> devices(new Devices(catalog, std::move(tiers)));
  std::vector<DeviceUuid> known = TRY(catalog.devices());
  for (const auto& tier : devices->tiers_) {
    const auto at = std::find(known.begin(), known.end(), tier->info().uuid);
    if (at != known.end()) {
      devices->index_of_tier_.push_back(static_cast<std::uint32_t>(at - known.begin()));
    } else {
      devices->index_of_tier_.push_back(TRY(catalog.add_device(tier->info().uuid)));
      known.push_back(tier->info().uuid);
    }
  }
  devices->by_index_.resize(known.size());
  for (std::size_t i = 0; i < devices->tiers_.size(); ++i) {
    devices->by_index_[devices->index_of_tier_[i]] = devices->tiers_[i].get();
  }
  for (const Tier* tier : devices->by_index_) {
    if (tier == nullptr) return fail(ENODEV, "a device of this catalog is not given");
  }
  return devices;
}

Result<NewCopy> Devices::create_copy(ObjectId object) {
  const auto first = turn_.fetch_add(1, std::memory_order_relaxed);
  Error last = fail(ENOSPC, "the budget is used, and nothing can be evicted");
  std::vector<std::size_t> order;
  for (const bool tight : {false, true}) {
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
      const std::size_t which = (first + i) % tiers_.size();
      const std::uint32_t index = index_of_tier_[which];
      if (is_full && is_full(index)) continue;
      if ((is_tight && is_tight(index)) == tight) order.push_back(which);
    }
  }
  for (const std::size_t which : order) {
    Result<UniqueFd> fd = tiers_[which]->create(object);
    if (fd.ok()) return NewCopy{.device = index_of_tier_[which], .fd = std::move(*fd)};
    last = fd.error();
    if (last.code != ENOSPC && last.code != EDQUOT) break;
  }
  return last;
}

Result<std::uint32_t> Devices::index_of(ObjectId object) {
  if (tiers_.size() == 1) return sole_index();
  const std::optional<ObjectRecord> record = TRY(catalog_.find_object(object));
  if (!record || record->device >= by_index_.size())
    return fail(ENOENT, "object without a copy");
  return record->device;
}

Result<Tier*> Devices::of(Inode& inode) {
  if (!inode.device) inode.device = TRY(index_of(inode.record.object));
  return by_index_[*inode.device];
}

}  // namespace kvcachefs
