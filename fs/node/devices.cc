#include "fs/node/devices.h"

#include <algorithm>
#include <cerrno>

#include "fs/node/bad_medium.h"
#include "fs/node/timed_call.h"

namespace kvcachefs {

bool is_device_failure(int error) noexcept {
  if (is_bad_medium(error)) return true;
  switch (error) {
    case EROFS:
    case ENODEV:
    case ENXIO:
    case ENOENT:  // of a new file: its directory has gone
    case ESHUTDOWN:
    case ESTALE:
    case ENOTCONN:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

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
  devices->states_ = std::vector<std::atomic<DeviceState>>(known.size());
  for (std::size_t i = 0; i < devices->tiers_.size(); ++i) {
    devices->by_index_[devices->index_of_tier_[i]] = devices->tiers_[i].get();
  }
  for (const Tier* tier : devices->by_index_) {
    if (tier == nullptr) return fail(ENODEV, "a device of this catalog is not given");
  }
  return devices;
}

Result<UniqueFd> Devices::create_on(std::size_t which, ObjectId object, bool patiently) {
  Tier& tier = *tiers_[which];
  const std::uint32_t index = index_of_tier_[which];
  const auto create = [this, &tier, index, object] {
    const StallWatch::Wait wait(stalls_, index);
    return tier.create(object);
  };
  if (patiently) return create();
  return call_within<UniqueFd>(threads_, index, std::chrono::nanoseconds{StallWatch::kStalled},
                               create, [&tier, object](Result<UniqueFd> late) {
                                 // Another device has the object by now.
                                 if (late.ok()) static_cast<void>(tier.remove(object).ok());
                               });
}

Result<void> Devices::remove_copy(std::uint32_t index, ObjectId object) {
  Tier& tier = *by_index_[index];
  const auto remove = [this, &tier, index, object] {
    const StallWatch::Wait wait(stalls_, index);
    return tier.remove(object);
  };
  if (tiers_.size() == 1) return remove();
  if (stalled(index) > 0) return fail(ETIMEDOUT, "the disk takes no writes");
  return call_within<void>(threads_, index, std::chrono::nanoseconds{StallWatch::kStalled},
                           remove, [](const Result<void>&) {});
}

Result<NewCopy> Devices::create_copy(ObjectId object) {
  const auto first = turn_.fetch_add(1, std::memory_order_relaxed);
  Error last = fail(ENOSPC, "the budget is used, and nothing can be evicted");
  // Each is looked at once: between two looks it may become tight, or stop to be, and would be in neither place.
  std::vector<std::size_t> roomy;
  std::vector<std::size_t> tight;
  std::vector<std::size_t> stalled;
  std::vector<std::size_t> ill;
  bool any_well = false;
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    const std::size_t which = (first + i) % tiers_.size();
    const std::uint32_t index = index_of_tier_[which];
    const bool is_well = state(index) == DeviceState::kWell;
    any_well = any_well || is_well;
    if (is_full && is_full(index)) continue;
    if (!is_well) {
      ill.push_back(which);
    } else if (tiers_.size() > 1 && this->stalled(index) > 0) {
      stalled.push_back(which);
    } else {
      (is_tight && is_tight(index) ? tight : roomy).push_back(which);
    }
  }
  std::vector<std::size_t> order = std::move(roomy);
  order.insert(order.end(), tight.begin(), tight.end());
  // None is well: the error is theirs, if it is still there.
  if (!any_well) order = std::move(ill);
  order.insert(order.end(), stalled.begin(), stalled.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t which = order[i];
    Result<UniqueFd> fd = create_on(which, object, i + 1 == order.size());
    if (fd.ok()) return NewCopy{.device = index_of_tier_[which], .fd = std::move(*fd)};
    last = fd.error();
    if (last.code == ETIMEDOUT || last.code == EAGAIN) continue;
    failed(index_of_tier_[which], last.code);
    if (last.code != ENOSPC && last.code != EDQUOT && !is_device_failure(last.code)) break;
  }
  return last;
}

DeviceState Devices::set_state(std::uint32_t index, DeviceState state) noexcept {
  const DeviceState before = states_[index].exchange(state);
  if (before != DeviceState::kLost && state == DeviceState::kLost) lost_.fetch_add(1);
  if (before == DeviceState::kLost && state != DeviceState::kLost) lost_.fetch_sub(1);
  return before;
}

void Devices::failed(std::uint32_t index, int error) const {
  if (is_device_failure(error) && on_suspect) on_suspect(index);
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
