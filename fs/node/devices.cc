#include "fs/node/devices.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "backend/base/must_wait.h"
#include "fs/node/bad_medium.h"

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

// One of several disks was asked for a file, and may come back later: until then it is not
// asked for the same one again, for that is removed then.
struct Devices::Attempt {
  std::atomic<bool> has_begun{false};
  std::atomic<bool> is_over{false};
  // Once call_within() has given up, a call that has not begun never does.
  [[nodiscard]] bool is_pending() const noexcept { return has_begun.load() && !is_over.load(); }
};

Result<UniqueFd> Devices::create_on(std::size_t which, ObjectId object,
                                    std::shared_ptr<Attempt>& attempt) {
  Tier& tier = *tiers_[which];
  const std::uint32_t index = index_of_tier_[which];
  attempt = std::make_shared<Attempt>();
  const auto create = [this, &tier, index, object, own = attempt] {
    own->has_begun = true;
    const StallWatch::Wait wait(stalls_, index);
    return tier.create(object);
  };
  return call_within<UniqueFd>(threads_, index, std::chrono::nanoseconds{StallWatch::kStalled},
                               create, [&tier, object, own = attempt](Result<UniqueFd> late) {
                                 // Another device has the object by now, or will have it.
                                 if (late.ok()) static_cast<void>(tier.remove(object).ok());
                                 own->is_over = true;
                               });
}

Result<void> Devices::remove_copy(std::uint32_t index, ObjectId object) {
  Tier& tier = *by_index_[index];
  const auto remove = [this, &tier, index, object] {
    const StallWatch::Wait wait(stalls_, index);
    return tier.remove(object);
  };
  if (tiers_.size() == 1) return remove();
  if (stalled(index) > 0 || silent(index) > 0)
    return fail(ETIMEDOUT, "the disk does not answer");
  return call_within<void>(threads_, index, std::chrono::nanoseconds{StallWatch::kStalled},
                           remove, [](const Result<void>&) {});
}

template <class T>
Result<T> Devices::ask(std::uint32_t index, std::function<Result<T>()> call) {
  if (refuses_to_wait()) return call();
  {
    const RefusesToWait here;
    Result<T> known = call();
    if (known.ok() || known.error().code != kMustWait) return known;
  }
  if (silent(index) > 0) return fail(ETIMEDOUT, "the disk gives nothing");
  const auto in_time = [this, index, call = std::move(call)] {
    const Question question(*this, index);
    return call();
  };
  // A silent disk ends the waiting of all, also of those that came late.
  const auto is_silent = [this, index] { return silent(index) > 0; };
  Result<T> asked = call_within<T>(
      threads_, kAsking | index, std::chrono::nanoseconds{patience()}, in_time,
      [](const Result<T>&) {}, is_silent);
  if (!asked.ok() && asked.error().code == EAGAIN) return fail(ETIMEDOUT, asked.error().what);
  return asked;
}

Result<struct stat> Devices::status_of_copy(std::uint32_t index, ObjectId object) {
  Tier& tier = *by_index_[index];
  return ask<struct stat>(index, [&tier, object] { return tier.status(object); });
}

Result<bool> Devices::is_used(std::uint32_t index, ObjectId object) {
  Tier& tier = *by_index_[index];
  Result<bool> used = ask<bool>(index, [&tier, object] { return tier.is_used(object); });
  // What somebody has open, or mapped, is in memory mostly.
  if (!used.ok() && (used.error().code == kMustWait || used.error().code == ETIMEDOUT))
    return true;
  return used;
}

Result<UniqueFd> Devices::open_copy(std::uint32_t index, ObjectId object, int flags) {
  Tier& tier = *by_index_[index];
  return ask<UniqueFd>(index, [&tier, object, flags] { return tier.open(object, flags); });
}

Devices::Candidates Devices::candidates(std::size_t first) const {
  Candidates out;
  // Each is looked at once: between two looks it may become tight, or stop to be, and would be in neither place.
  std::vector<std::size_t> tight;
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
    } else if (stalled(index) > 0 || silent(index) > 0) {
      out.any_stalled = true;
    } else {
      (is_tight && is_tight(index) ? tight : out.order).push_back(which);
    }
  }
  out.order.insert(out.order.end(), tight.begin(), tight.end());
  // None is well: the error is theirs, if it is still there.
  if (!any_well) out.order = std::move(ill);
  return out;
}

Result<NewCopy> Devices::create_copy(ObjectId object) {
  if (tiers_.size() == 1) return create_on_the_only_one(object);
  const auto first = turn_.fetch_add(1, std::memory_order_relaxed);
  const auto deadline = std::chrono::steady_clock::now() + kLongestCreate;
  std::vector<std::shared_ptr<Attempt>> attempts(tiers_.size());
  while (true) {
    Error last = fail(ENOSPC, "the budget is used, and nothing can be evicted");
    const Candidates now = candidates(first);
    bool any_late = now.any_stalled;
    bool any_error = false;
    for (const std::size_t which : now.order) {
      std::shared_ptr<Attempt>& attempt = attempts[which];
      if (attempt != nullptr && attempt->is_pending()) {
        any_late = true;
        continue;
      }
      Result<UniqueFd> fd = create_on(which, object, attempt);
      if (fd.ok()) return NewCopy{.device = index_of_tier_[which], .fd = std::move(*fd)};
      if (fd.error().code == ETIMEDOUT || fd.error().code == EAGAIN) {
        any_late = true;
        continue;
      }
      last = fd.error();
      any_error = true;
      failed(index_of_tier_[which], last.code);
      if (last.code != ENOSPC && last.code != EDQUOT && !is_device_failure(last.code))
        return last;
    }
    if (any_error || !any_late) return last;
    if (std::chrono::steady_clock::now() >= deadline) return fail(EIO, "no disk takes writes");
    // They wait in the kernel, which tells nobody when it is over.
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// There is nobody else to ask: its caller waits as on any filesystem.
Result<NewCopy> Devices::create_on_the_only_one(ObjectId object) {
  const std::uint32_t index = index_of_tier_.front();
  if (is_full && is_full(index))
    return fail(ENOSPC, "the budget is used, and nothing can be evicted");
  const StallWatch::Wait wait(stalls_, index);
  Result<UniqueFd> fd = tiers_.front()->create(object);
  if (fd.ok()) return NewCopy{.device = index, .fd = std::move(*fd)};
  failed(index, fd.error().code);
  return fd.error();
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

std::optional<std::uint32_t> Devices::index_of(const Tier& tier) const noexcept {
  const auto at = std::find(by_index_.begin(), by_index_.end(), &tier);
  if (at == by_index_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(at - by_index_.begin());
}

Result<Tier*> Devices::of(Inode& inode) {
  if (!inode.device) inode.device = TRY(index_of(inode.record.object));
  inode.disk.store(*inode.device, std::memory_order_relaxed);
  return by_index_[*inode.device];
}

}  // namespace kvcachefs
