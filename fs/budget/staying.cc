#include "fs/budget/staying.h"

#include <algorithm>

namespace kvcachefs {
namespace {

// Of the budget: what those without a share may have at least, however much the shares are.
constexpr std::uint64_t kLeastPart = 16;
// Of the budget: files that are being written, beside what is kept.
constexpr std::uint64_t kSlackPart = 8;
// Of a bound: how far ahead it is near, and how far beyond it somebody is who was not stopped
// there.
constexpr std::uint64_t kNearPart = 8;
// A file that is opened writes as fast as memory takes it.
constexpr auto kLeastNear = static_cast<std::int64_t>(256 * kMiB);

std::int64_t part_of(std::uint64_t bound) noexcept {
  return static_cast<std::int64_t>(bound / kNearPart);
}

}  // namespace

Staying::Staying(const std::vector<Tenant>& tenants, const TenantUses& uses,
                 std::uint64_t budget, std::uint64_t inode_bytes) {
  for (const Tenant& tenant : tenants) {
    if (!tenant.terms.quota) continue;
    Left& left = left_[tenant.slot];
    left.quota = *tenant.terms.quota;
    left.of_quota = -beyond(uses[tenant.slot].stays(), left.quota);
  }
  const Accounts accounts(tenants, budget);
  if (!accounts.any_share() || budget == 0) return;
  slack_ = static_cast<std::int64_t>(budget / kSlackPart);
  const Accounts::Bytes used = accounts.used(uses, [inode_bytes](const TenantUse& use) {
    const std::uint64_t by_inodes = use.staying_files * inode_bytes;
    return use.open + std::max(use.stays() - use.open, by_inodes);
  });
  for (std::size_t slot = 0; slot < left_.size(); ++slot) {
    const TenantSlot account = accounts.of(static_cast<TenantSlot>(slot));
    const std::uint64_t part = accounts.part_of(budget, account);
    left_[slot].share = account == 0 ? std::max(part, budget / kLeastPart) : part;
    left_[slot].of_share = -beyond(used[account], left_[slot].share);
  }
}

TenantMask Staying::beyond_quota() const noexcept {
  return tenants_that([this](TenantSlot slot) { return left_[slot].of_quota < 0; });
}

TenantMask Staying::beyond_share() const noexcept {
  return tenants_that([this](TenantSlot slot) { return left_[slot].of_share < -slack_; });
}

TenantMask Staying::near() const noexcept {
  return tenants_that([this](TenantSlot slot) {
    const Left& left = left_[slot];
    const bool is_near_quota =
        left.quota > 0 && left.of_quota < std::max(part_of(left.quota), kLeastNear);
    const bool is_near_share = left.share > 0 && left.of_share < part_of(left.share) - slack_;
    return is_near_quota || is_near_share;
  });
}

TenantMask Staying::far_beyond_quota() const noexcept {
  return tenants_that([this](TenantSlot slot) {
    const Left& left = left_[slot];
    return left.of_quota < 0 && left.of_quota < -part_of(left.quota);
  });
}

TenantMask Staying::far_beyond_share() const noexcept {
  return tenants_that([this](TenantSlot slot) { return left_[slot].of_share < -2 * slack_; });
}

}  // namespace kvcachefs
