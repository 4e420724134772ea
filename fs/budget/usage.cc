#include "fs/budget/usage.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace kvcachefs {
namespace {

std::uint64_t not_below_zero(std::int64_t sum) noexcept {
  return sum < 0 ? 0 : static_cast<std::uint64_t>(sum);
}

void take(std::uint64_t& from, std::uint64_t bytes) noexcept { from -= std::min(from, bytes); }

}  // namespace

void Usage::add_to(Sums& sums, const SealedCopy& copy) {
  if (copy.device >= sums.devices.size()) return;
  sums.marks.set(copy.object, {.kept = copy.kept, .tenant = copy.tenant});
  for (Sealed* const sealed : {&sums.devices[copy.device], &sums.tenants[copy.tenant]}) {
    (copy.kept ? sealed->kept : sealed->evictable) += static_cast<std::int64_t>(copy.bytes);
    if (copy.kept) ++sealed->kept_files;
  }
}

// Who takes it away need not know why it was kept, or whose it was: its names may have gone.
ObjectMark Usage::remove_from(Sums& sums, const SealedCopy& copy) {
  if (copy.device >= sums.devices.size()) return {};
  const ObjectMark mark = sums.marks.take(copy.object);
  for (Sealed* const sealed : {&sums.devices[copy.device], &sums.tenants[mark.tenant]}) {
    (mark.kept ? sealed->kept : sealed->evictable) -= static_cast<std::int64_t>(copy.bytes);
    if (mark.kept) --sealed->kept_files;
  }
  return mark;
}

void Usage::add(const SealedCopy& copy) {
  if (complete_) add_to(sums_, copy);
  if (!complete_ && knows(copy.device))
    devices_[copy.device].believed += static_cast<std::int64_t>(copy.bytes);
  if (is_in_walk(copy.object)) add_to(next_, copy);
  if (copy.open) add_open(copy);
}

ObjectMark Usage::remove(const SealedCopy& copy) {
  ObjectMark mark{.kept = copy.kept, .tenant = copy.tenant};
  if (complete_) mark = remove_from(sums_, copy);
  if (!complete_ && knows(copy.device))
    devices_[copy.device].believed -= static_cast<std::int64_t>(copy.bytes);
  if (is_in_walk(copy.object)) mark = remove_from(next_, copy);
  remove_open(copy.object);
  return mark;
}

// What is kept stays anyhow.
void Usage::add_open(const SealedCopy& copy) {
  if (copy.kept || !knows(copy.device)) return;
  remove_open(copy.object);
  open_[copy.object] = {.device = copy.device, .bytes = copy.bytes, .tenant = copy.tenant};
  devices_[copy.device].open += copy.bytes;
  open_of_[copy.tenant] += copy.bytes;
}

void Usage::remove_open(ObjectId object) {
  const auto at = open_.find(object);
  if (at == open_.end()) return;
  take(devices_[at->second.device].open, at->second.bytes);
  take(open_of_[at->second.tenant], at->second.bytes);
  open_.erase(at);
}

void Usage::opened(const SealedCopy& copy) {
  const std::lock_guard lock(mutex_);
  add_open(copy);
}

void Usage::closed(ObjectId object) {
  const std::lock_guard lock(mutex_);
  remove_open(object);
}

void Usage::count(const Live& live) {
  Device& device = devices_[live.device];
  (live.settling ? device.settling : device.live) += live.bytes;
  device.ahead += live.ahead;
  live_of_[live.tenant] += live.bytes;
  if (live.settling) settling_of_[live.tenant] += live.bytes;
  if (live.is_file && !live.settling) ++live_files_of_[live.tenant];
}

void Usage::discount(const Live& live) {
  Device& device = devices_[live.device];
  take(live.settling ? device.settling : device.live, live.bytes);
  take(device.ahead, live.ahead);
  take(live_of_[live.tenant], live.bytes);
  if (live.settling) take(settling_of_[live.tenant], live.bytes);
  if (live.is_file && !live.settling) take(live_files_of_[live.tenant], 1);
}

void Usage::set_live(InodeNumber inode, std::uint32_t device, std::uint64_t bytes,
                     TenantSlot tenant) {
  if (!knows(device)) return;
  Live& live = live_[inode];
  discount(live);
  live = {.device = device,
          .bytes = bytes,
          .ahead = 0,
          .settling = false,
          .tenant = tenant,
          .is_file = true};
  count(live);
  count_reserved(inode);
}

void Usage::made(InodeNumber inode, std::uint32_t device, TenantSlot tenant) {
  const std::lock_guard lock(mutex_);
  set_live(inode, device, 0, tenant);
}

void Usage::set_tenant(InodeNumber inode, TenantSlot tenant) {
  const std::lock_guard lock(mutex_);
  const auto at = live_.find(inode);
  if (at == live_.end() || at->second.tenant == tenant) return;
  discount(at->second);
  at->second.tenant = tenant;
  count(at->second);
}

void Usage::measured(InodeNumber inode, std::uint64_t bytes, std::uint64_t ahead) {
  const std::lock_guard lock(mutex_);
  const auto at = live_.find(inode);
  if (at == live_.end()) return;
  Live& live = at->second;
  if (bytes > live.bytes) devices_[live.device].written += bytes - live.bytes;
  discount(live);
  live.bytes = bytes;
  live.ahead = ahead;
  count(live);
  count_reserved(inode);
}

void Usage::set_settling(InodeNumber inode, bool settling) {
  const std::lock_guard lock(mutex_);
  const auto at = live_.find(inode);
  if (at == live_.end()) return;
  discount(at->second);
  at->second.settling = settling;
  count(at->second);
}

void Usage::sealed(InodeNumber inode, const SealedCopy& copy) {
  const std::lock_guard lock(mutex_);
  const auto at = live_.find(inode);
  if (at != live_.end()) {
    Device& device = devices_[at->second.device];
    if (copy.bytes > at->second.bytes) device.written += copy.bytes - at->second.bytes;
    discount(at->second);
    live_.erase(at);
  }
  add(copy);
}

void Usage::unsealed(InodeNumber inode, const SealedCopy& copy) {
  const std::lock_guard lock(mutex_);
  const ObjectMark was = remove(copy);
  set_live(inode, copy.device, copy.bytes, was.tenant);
}

std::vector<std::pair<InodeNumber, ObjectId>> Usage::still_leaving() {
  constexpr std::size_t kMost = 65'536;
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<InodeNumber, ObjectId>> out;
  if (leaving_.size() > kMost) return out;
  for (auto& [object, leaving] : leaving_)
    if (leaving.inode != 0 && !leaving.mapped && std::exchange(leaving.seen, true))
      out.emplace_back(leaving.inode, object);
  return out;
}

void Usage::count(const Leaving& leaving) {
  Device& device = devices_[leaving.device];
  const bool stays = leaving.held || leaving.mapped;
  (stays ? device.live : device.leaving) += leaving.bytes;
  if (!stays) ++device.leaving_files;
  if (leaving.mapped) live_of_[leaving.tenant] += leaving.bytes;
}

void Usage::discount(const Leaving& leaving) {
  Device& device = devices_[leaving.device];
  const bool stays = leaving.held || leaving.mapped;
  take(stays ? device.live : device.leaving, leaving.bytes);
  if (!stays) take(device.leaving_files, 1);
  if (leaving.mapped) take(live_of_[leaving.tenant], leaving.bytes);
}

bool Usage::is_counted_wrong(ObjectId object, ObjectMark mark) const {
  const std::lock_guard lock(mutex_);
  return (complete_ && sums_.marks.of(object) != mark) ||
         (is_in_walk(object) && next_.marks.of(object) != mark);
}

void Usage::counted_anew(const SealedCopy& copy) {
  const std::lock_guard lock(mutex_);
  remove(copy);
  add(copy);
}

void Usage::set_leaving(ObjectId object, const Leaving& leaving) {
  if (!knows(leaving.device)) return;
  const auto [at, is_new] = leaving_.try_emplace(object);
  if (!is_new) discount(at->second);
  at->second = leaving;
  count(leaving);
}

void Usage::mapped(ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto at = leaving_.find(object);
  if (at == leaving_.end() || at->second.mapped) return;
  discount(at->second);
  at->second.mapped = true;
  count(at->second);
}

void Usage::nameless(InodeNumber inode, const SealedCopy& copy, bool is_open) {
  const std::lock_guard lock(mutex_);
  const ObjectMark was = remove(copy);
  if (is_open) {
    set_live(inode, copy.device, copy.bytes, was.tenant);
  } else {
    set_leaving(
        copy.object,
        {.device = copy.device, .bytes = copy.bytes, .tenant = was.tenant, .inode = inode});
  }
}

void Usage::replaced(InodeNumber inode, ObjectId object,
                     const std::optional<SealedCopy>& sealed) {
  const std::lock_guard lock(mutex_);
  if (sealed) {
    const ObjectMark was = remove(*sealed);
    set_leaving(
        object,
        {.device = sealed->device, .bytes = sealed->bytes, .tenant = was.tenant, .held = true});
  } else if (const auto at = live_.find(inode); at != live_.end()) {
    const Live live = at->second;
    discount(live);
    live_.erase(at);
    set_leaving(
        object,
        {.device = live.device, .bytes = live.bytes, .tenant = live.tenant, .held = true});
  }
}

void Usage::let_go(ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto at = leaving_.find(object);
  if (at == leaving_.end()) return;
  discount(at->second);
  at->second.held = false;
  count(at->second);
}

void Usage::taken_back(InodeNumber inode, ObjectId replacement, ObjectId object,
                       const std::optional<SealedCopy>& sealed) {
  const std::lock_guard lock(mutex_);
  const auto live = live_.find(inode);
  const TenantSlot tenant = live == live_.end() ? TenantSlot{0} : live->second.tenant;
  leave_live(inode, replacement);
  const auto at = leaving_.find(object);
  if (at == leaving_.end()) return;
  const Leaving held = at->second;
  discount(held);
  leaving_.erase(at);
  if (sealed) {
    add(*sealed);
  } else {
    set_live(inode, held.device, held.bytes, tenant);
  }
}

void Usage::live_nameless(InodeNumber inode, ObjectId object) {
  const std::lock_guard lock(mutex_);
  leave_live(inode, object);
}

void Usage::leave_live(InodeNumber inode, ObjectId object) {
  const auto at = live_.find(inode);
  if (at == live_.end()) return;
  const Live live = at->second;
  discount(live);
  live_.erase(at);
  set_leaving(
      object,
      {.device = live.device, .bytes = live.bytes, .tenant = live.tenant, .inode = inode});
}

void Usage::reaped(InodeNumber inode, ObjectId object) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = live_.find(inode); at != live_.end()) {
      discount(at->second);
      live_.erase(at);
    }
  }
  reaped_object(object);
}

void Usage::reaped_object(ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto at = leaving_.find(object);
  if (at == leaving_.end()) return;
  discount(at->second);
  leaving_.erase(at);
}

void Usage::believe(const std::vector<std::uint64_t>& sealed) {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t device = 0; device < sealed.size() && knows(device); ++device)
    devices_[device].believed += static_cast<std::int64_t>(sealed[device]);
  believes_ = true;
}

void Usage::begin_walk(ObjectId first_new) {
  const std::lock_guard lock(mutex_);
  next_ = {};
  next_.devices.resize(devices_.size());
  first_new_ = first_new;
  passed_ = 0;
  walking_ = true;
}

void Usage::walked(const SealedCopy& copy) {
  const std::lock_guard lock(mutex_);
  if (!walking_ || copy.object >= first_new_ || copy.object <= passed_) return;
  passed_ = copy.object;
  add_to(next_, copy);
}

void Usage::passed(ObjectId last) {
  const std::lock_guard lock(mutex_);
  passed_ = std::max(passed_, last);
}

void Usage::end_walk() {
  const std::lock_guard lock(mutex_);
  sums_ = std::exchange(next_, {});
  complete_ = true;
  walking_ = false;
}

void Usage::reserve(InodeNumber inode, std::uint32_t device, TenantSlot tenant,
                    std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!knows(device)) return;
  const auto [at, is_new] = reserved_.try_emplace(inode);
  Reserved& reserved = at->second;
  if (is_new) {
    reserved.device = device;
    reserved.tenant = tenant;
    if (const auto live = live_.find(inode); live != live_.end())
      reserved.base = live->second.bytes;
  }
  reserved.bytes += bytes;
  count_reserved(inode);
}

void Usage::give_back(InodeNumber inode, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = reserved_.find(inode);
  if (at == reserved_.end()) return;
  Reserved& reserved = at->second;
  // It has them by now, or nobody is about to take them any more: count_reserved() sees which.
  reserved.base += bytes;
  take(reserved.bytes, bytes);
  count_reserved(inode);
  if (reserved.bytes == 0) reserved_.erase(at);
}

void Usage::count_reserved(InodeNumber inode) {
  const auto at = reserved_.find(inode);
  if (at == reserved_.end()) return;
  Reserved& reserved = at->second;
  const auto live = live_.find(inode);
  const std::uint64_t has = live == live_.end() ? reserved.base : live->second.bytes;
  reserved.base = std::min(reserved.base, has);
  const std::uint64_t expected = reserved.base + reserved.bytes;
  const std::uint64_t more = expected - std::min(expected, has);
  Device& device = devices_[reserved.device];
  take(device.live, reserved.counted);
  take(live_of_[reserved.tenant], reserved.counted);
  device.live += more;
  live_of_[reserved.tenant] += more;
  reserved.counted = more;
}

UsageSums Usage::on(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  UsageSums out;
  if (!knows(device)) return out;
  out.live = devices_[device].live;
  out.settling = devices_[device].settling;
  out.leaving = devices_[device].leaving;
  out.leaving_files = devices_[device].leaving_files;
  out.ahead = devices_[device].ahead;
  out.written = devices_[device].written;
  out.complete = complete_;
  out.known = complete_ || believes_;
  if (!complete_ && believes_) out.believed = not_below_zero(devices_[device].believed);
  if (complete_) {
    const std::uint64_t cache = not_below_zero(sums_.devices[device].evictable);
    out.open = std::min(devices_[device].open, cache);
    out.evictable = cache - out.open;
    out.kept = not_below_zero(sums_.devices[device].kept);
  }
  return out;
}

TenantUses Usage::by_tenant() const {
  const std::lock_guard lock(mutex_);
  TenantUses out;
  for (std::size_t slot = 0; slot < out.size(); ++slot) {
    out[slot].live = live_of_[slot];
    out[slot].settling = std::min(settling_of_[slot], live_of_[slot]);
    out[slot].open = open_of_[slot];
    out[slot].staying_files = live_files_of_[slot];
    if (complete_) {
      const std::uint64_t cache = not_below_zero(sums_.tenants[slot].evictable);
      out[slot].open = std::min(out[slot].open, cache);
      out[slot].evictable = cache - out[slot].open;
      out[slot].kept = not_below_zero(sums_.tenants[slot].kept);
      out[slot].staying_files += not_below_zero(sums_.tenants[slot].kept_files);
    } else if (walking_) {
      out[slot].kept = not_below_zero(next_.tenants[slot].kept);
      out[slot].staying_files += not_below_zero(next_.tenants[slot].kept_files);
    }
  }
  return out;
}

std::uint64_t Usage::live_files() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

std::vector<InodeNumber> Usage::largest_of(const std::vector<InodeNumber>& inodes,
                                           TenantMask tenants, std::size_t most) const {
  std::vector<std::pair<std::uint64_t, InodeNumber>> found;
  {
    const std::lock_guard lock(mutex_);
    for (const InodeNumber inode : inodes) {
      const auto at = live_.find(inode);
      if (at != live_.end() && (mask_of(at->second.tenant) & tenants) != 0)
        found.emplace_back(at->second.bytes, inode);
    }
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  found.resize(std::min(found.size(), most));
  std::vector<InodeNumber> out;
  for (const auto& [bytes, inode] : found) out.push_back(inode);
  return out;
}

bool Usage::is_complete() const {
  const std::lock_guard lock(mutex_);
  return complete_;
}

bool Usage::is_counted_kept(ObjectId object) const {
  const std::lock_guard lock(mutex_);
  return (complete_ ? sums_ : next_).marks.of(object).kept;
}

}  // namespace kvcachefs
