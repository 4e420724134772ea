#include "fs/budget/staying.h"

#include <algorithm>

namespace kvcachefs {
namespace {

// Of the budget: what those without a share may have at least, however much the shares are.
constexpr std::uint64_t kLeastPart = 16;
// Of the budget: files that are being written, beside what is kept.
constexpr std::uint64_t kSlackPart = 8;
// Of a bound: how far ahead it is near, and how far beyond it somebody is who was not stopped there.
constexpr std::uint64_t kNearPart = 8;
// A file that is opened writes as fast as memory takes it.
constexpr auto kLeastNear = static_cast<std::int64_t>(256 * kMiB);

std::int64_t less(std::uint64_t bound, std::uint64_t used) noexcept {
  return static_cast<std::int64_t>(bound) - static_cast<std::int64_t>(used);
}

std::int64_t part_of(std::uint64_t bound) noexcept {
  return static_cast<std::int64_t>(bound / kNearPart);
}

}  // namespace

Staying::Staying(const std::vector<Tenant>& tenants, const TenantUses& uses,
                 std::uint64_t budget) {
  std::array<std::uint64_t, order::kGroups> bounds{};
  std::array<TenantSlot, order::kGroups> account{};
  std::uint64_t shared = 0;
  bool any_share = false;
  for (const Tenant& tenant : tenants) {
    Left& left = left_[tenant.slot];
    if (tenant.terms.quota) {
      left.quota = *tenant.terms.quota;
      left.of_quota = less(left.quota, uses[tenant.slot].stays());
    }
    if (!tenant.terms.share) continue;
    any_share = true;
    account[tenant.slot] = tenant.slot;
    bounds[tenant.slot] = std::min(tenant.terms.share->of(budget), budget);
    shared += bounds[tenant.slot];
  }
  if (!any_share || budget == 0) return;
  slack_ = static_cast<std::int64_t>(budget / kSlackPart);
  // Shares of more than there is are cut down as when room is made (shares.h).
  const auto scale =
      static_cast<long double>(budget) / static_cast<long double>(std::max(shared, budget));
  for (std::uint64_t& bound : bounds)
    bound = static_cast<std::uint64_t>(static_cast<long double>(bound) * scale);
  bounds[0] = std::max(budget - std::min(budget, shared), budget / kLeastPart);
  std::array<std::uint64_t, order::kGroups> used{};
  for (std::size_t slot = 0; slot < uses.size(); ++slot)
    used[account[slot]] += uses[slot].stays();
  for (std::size_t slot = 0; slot < left_.size(); ++slot) {
    left_[slot].share = bounds[account[slot]];
    left_[slot].of_share = less(left_[slot].share, used[account[slot]]);
  }
}

TenantMask Staying::beyond_quota() const noexcept {
  return those([](const Left& left) { return left.of_quota < 0; });
}

TenantMask Staying::beyond_share() const noexcept {
  return those([this](const Left& left) { return left.of_share < -slack_; });
}

TenantMask Staying::near() const noexcept {
  return those([this](const Left& left) {
    const bool is_near_quota =
        left.quota > 0 && left.of_quota < std::max(part_of(left.quota), kLeastNear);
    const bool is_near_share = left.share > 0 && left.of_share < part_of(left.share) - slack_;
    return is_near_quota || is_near_share;
  });
}

TenantMask Staying::far_beyond_quota() const noexcept {
  return those([](const Left& left) {
    return left.of_quota < 0 && left.of_quota < -part_of(left.quota);
  });
}

TenantMask Staying::far_beyond_share() const noexcept {
  return those([this](const Left& left) { return left.of_share < -2 * slack_; });
}

}  // namespace kvcachefs
