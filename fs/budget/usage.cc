#include "fs/budget/usage.h"

#include <algorithm>
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
  Sealed& sealed = sums.devices[copy.device];
  if (copy.kept != copy.keep_flag) sums.against_flag.insert(copy.object);
  (copy.kept ? sealed.kept : sealed.evictable) += static_cast<std::int64_t>(copy.bytes);
}

// Who takes it away need not know why it was kept: its names may have gone.
void Usage::remove_from(Sums& sums, const SealedCopy& copy) {
  if (copy.device >= sums.devices.size()) return;
  Sealed& sealed = sums.devices[copy.device];
  const bool against = sums.against_flag.erase(copy.object) > 0;
  const bool kept = copy.keep_flag != against;
  (kept ? sealed.kept : sealed.evictable) -= static_cast<std::int64_t>(copy.bytes);
}

void Usage::add(const SealedCopy& copy) {
  if (complete_) add_to(sums_, copy);
  if (is_in_walk(copy.object)) add_to(next_, copy);
}

void Usage::remove(const SealedCopy& copy) {
  if (complete_) remove_from(sums_, copy);
  if (is_in_walk(copy.object)) remove_from(next_, copy);
}

void Usage::set_live(InodeNumber inode, std::uint32_t device, std::uint64_t bytes) {
  if (!knows(device)) return;
  Live& live = live_[inode];
  if (knows(live.device)) take(devices_[live.device].live, live.bytes);
  live = {.device = device, .bytes = bytes};
  devices_[device].live += bytes;
}

void Usage::made(InodeNumber inode, std::uint32_t device) {
  const std::lock_guard lock(mutex_);
  set_live(inode, device, 0);
}

void Usage::measured(InodeNumber inode, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = live_.find(inode);
  if (at == live_.end()) return;
  Live& live = at->second;
  Device& device = devices_[live.device];
  if (bytes > live.bytes) device.written += bytes - live.bytes;
  take(device.live, live.bytes);
  device.live += bytes;
  live.bytes = bytes;
}

void Usage::sealed(InodeNumber inode, const SealedCopy& copy) {
  const std::lock_guard lock(mutex_);
  const auto at = live_.find(inode);
  if (at != live_.end()) {
    Device& device = devices_[at->second.device];
    if (copy.bytes > at->second.bytes) device.written += copy.bytes - at->second.bytes;
    take(device.live, at->second.bytes);
    live_.erase(at);
  }
  add(copy);
}

void Usage::unsealed(InodeNumber inode, const SealedCopy& copy) {
  const std::lock_guard lock(mutex_);
  remove(copy);
  set_live(inode, copy.device, copy.bytes);
}

void Usage::keep_flag_changed(const SealedCopy& copy) {
  const std::lock_guard lock(mutex_);
  SealedCopy before = copy;
  before.keep_flag = !copy.keep_flag;
  remove(before);
  add(copy);
}

void Usage::set_leaving(ObjectId object, std::uint32_t device, std::uint64_t bytes) {
  if (!knows(device)) return;
  Live& leaving = leaving_[object];
  take(devices_[leaving.device].leaving, leaving.bytes);
  leaving = {.device = device, .bytes = bytes};
  devices_[device].leaving += bytes;
}

void Usage::nameless(InodeNumber inode, const SealedCopy& copy, bool is_open) {
  const std::lock_guard lock(mutex_);
  remove(copy);
  if (is_open) {
    set_live(inode, copy.device, copy.bytes);
  } else {
    set_leaving(copy.object, copy.device, copy.bytes);
  }
}

void Usage::live_nameless(InodeNumber inode, ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto at = live_.find(inode);
  if (at == live_.end()) return;
  const Live live = at->second;
  take(devices_[live.device].live, live.bytes);
  live_.erase(at);
  set_leaving(object, live.device, live.bytes);
}

void Usage::reaped(InodeNumber inode, ObjectId object) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = live_.find(inode); at != live_.end()) {
      take(devices_[at->second.device].live, at->second.bytes);
      live_.erase(at);
    }
  }
  reaped_object(object);
}

void Usage::reaped_object(ObjectId object) {
  const std::lock_guard lock(mutex_);
  const auto at = leaving_.find(object);
  if (at == leaving_.end()) return;
  take(devices_[at->second.device].leaving, at->second.bytes);
  leaving_.erase(at);
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

UsageSums Usage::on(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  UsageSums out;
  if (!knows(device)) return out;
  out.live = devices_[device].live;
  out.leaving = devices_[device].leaving;
  out.written = devices_[device].written;
  out.complete = complete_;
  if (complete_) {
    out.evictable = not_below_zero(sums_.devices[device].evictable);
    out.kept = not_below_zero(sums_.devices[device].kept);
  }
  return out;
}

std::uint64_t Usage::live_files() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

}  // namespace kvcachefs
