// A device that takes no writes for a while, as a disk does that is frozen: who makes a file on
// it waits.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "backend/tier.h"

namespace kvcachefs::testing {

class HeldTier : public Tier {
 public:
  explicit HeldTier(std::unique_ptr<Tier> tier) : tier_(std::move(tier)) {}

  void set_held(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

  [[nodiscard]] const TierInfo& info() const noexcept override { return tier_->info(); }
  Result<UniqueFd> create(std::uint64_t object) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !held_; });
    }
    return tier_->create(object);
  }
  Result<UniqueFd> open(std::uint64_t object, int flags) override {
    return tier_->open(object, flags);
  }
  Result<struct stat> status(std::uint64_t object) override { return tier_->status(object); }
  Result<bool> is_used(std::uint64_t object) override { return tier_->is_used(object); }
  Result<void> remove(std::uint64_t object) override { return tier_->remove(object); }
  Result<void> quarantine(std::uint64_t object) override { return tier_->quarantine(object); }
  Result<void> sync() override { return tier_->sync(); }
  Result<void> check(TierCheck how) override { return tier_->check(how); }
  Result<struct statvfs> space() override { return tier_->space(); }
  Result<std::string> mount_identity() override { return tier_->mount_identity(); }
  Result<void> each(const std::function<bool(std::uint64_t object)>& visit,
                    const std::function<void(const std::string& path)>& unknown) override {
    return tier_->each(visit, unknown);
  }

 private:
  const std::unique_ptr<Tier> tier_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;  // under mutex_
};

}  // namespace kvcachefs::testing
