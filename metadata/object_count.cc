#include "metadata/object_count.h"

#include <algorithm>

namespace kvcachefs {
namespace {

// As many devices as a mount can have; a damaged record may name any.
constexpr std::uint32_t kMostDevices = 4096;

}  // namespace

void ObjectCount::add(std::uint32_t device, std::int64_t change) {
  if (device >= kMostDevices) return;
  if (counts_.size() <= device) counts_.resize(device + 1);
  counts_[device] += change;
}

void ObjectCount::begin(ObjectId first_new) {
  const std::lock_guard lock(mutex_);
  began_ = true;
  first_new_ = first_new;
}

void ObjectCount::leaving(std::span<const ObjectPlace> objects) {
  if (objects.empty()) return;
  const std::lock_guard lock(mutex_);
  if (!began_) return;
  for (const auto& [id, device, inode] : objects) {
    if (is_in(id)) {
      add(device, -1);
    } else {
      left_early_.insert(id);
    }
  }
}

void ObjectCount::stayed(std::span<const ObjectPlace> objects) {
  if (objects.empty()) return;
  const std::lock_guard lock(mutex_);
  if (!began_) return;
  for (const auto& [id, device, inode] : objects) {
    // Noted, and the walk may have come by since: then it is not counted yet.
    if (is_in(id)) {
      add(device, 1);
    } else {
      left_early_.erase(id);
    }
  }
}

void ObjectCount::came(std::span<const ObjectPlace> objects) {
  if (objects.empty()) return;
  const std::lock_guard lock(mutex_);
  if (!began_) return;
  for (const auto& [id, device, inode] : objects) {
    if (is_in(id)) add(device, 1);
  }
}

void ObjectCount::passed(ObjectId last, std::span<const ObjectPlace> objects) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, device, inode] : objects) {
    if (id < first_new_ && left_early_.count(id) == 0) add(device, 1);
  }
  passed_ = std::max(passed_, last);
  std::erase_if(left_early_, [this](ObjectId id) { return id <= passed_; });
}

void ObjectCount::passed_all() {
  const std::lock_guard lock(mutex_);
  passed_ = UINT64_MAX;
  left_early_ = {};
  complete_ = true;
}

std::optional<std::uint64_t> ObjectCount::on(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  if (!complete_) return std::nullopt;
  const std::int64_t count = device < counts_.size() ? counts_[device] : 0;
  return static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
}

}  // namespace kvcachefs
