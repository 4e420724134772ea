#include "fs/fuse/parking.h"

#include <algorithm>
#include <utility>

namespace kvcachefs {

Parking::Place& Parking::Place::operator=(Place&& other) noexcept {
  leave();
  parking_ = std::move(other.parking_);
  user_ = other.user_;
  return *this;
}

void Parking::Place::leave() noexcept {
  if (const auto parking = std::exchange(parking_, nullptr)) parking->leave(user_);
}

Parking& Parking::of_this_thread() {
  thread_local const auto own = std::make_shared<Parking>();
  return *own;
}

Parking::Place Parking::enter(std::uint32_t user, std::size_t most) {
  const std::lock_guard lock(mutex_);
  const auto at = users_.find(user);
  const std::size_t has = at == users_.end() ? 0 : at->second;
  const bool has_few = has == 0 || 2 * has < taken_;
  const std::size_t last = std::max<std::size_t>(most / 8, 1);
  if (taken_ + (has_few ? 0 : last) >= most) return {};
  ++taken_;
  ++users_[user];
  return {shared_from_this(), user};
}

Parking::Place Parking::enter_beyond(std::size_t most) {
  const std::lock_guard lock(mutex_);
  if (beyond_ >= most) return {};
  ++beyond_;
  return {shared_from_this(), std::nullopt};
}

std::uint64_t Parking::leaves() const {
  const std::lock_guard lock(mutex_);
  return leaves_;
}

void Parking::await_leave(std::uint64_t seen, std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  left_.wait_for(lock, most, [this, seen] { return leaves_ != seen; });
}

void Parking::leave(std::optional<std::uint32_t> user) noexcept {
  const std::lock_guard lock(mutex_);
  ++leaves_;
  left_.notify_all();
  if (!user) {
    --beyond_;
    return;
  }
  --taken_;
  const auto at = users_.find(*user);
  if (--at->second == 0) users_.erase(at);
}

}  // namespace kvcachefs
