#include "fs/budget/shares.h"

#include <algorithm>

namespace kvcachefs {
namespace {

// part / whole of value, in proportion.
std::uint64_t scaled(std::uint64_t value, std::uint64_t part, std::uint64_t whole) noexcept {
  if (whole == 0) return 0;
  return static_cast<std::uint64_t>(static_cast<long double>(value) *
                                    static_cast<long double>(part) /
                                    static_cast<long double>(whole));
}

std::int64_t beyond(std::uint64_t used, std::uint64_t allowed) noexcept {
  return static_cast<std::int64_t>(used) - static_cast<std::int64_t>(allowed);
}

}  // namespace

Shares::Shares(const std::vector<Tenant>& tenants, const TenantUses& uses, std::uint64_t budget,
               std::uint64_t may_be_used) {
  std::array<std::uint64_t, order::kGroups> allowed{};
  std::uint64_t shared = 0;
  for (const Tenant& tenant : tenants) {
    if (tenant.terms.quota)
      quota_[tenant.slot] = beyond(uses[tenant.slot].all(), *tenant.terms.quota);
    if (!tenant.terms.share) continue;
    any_ = true;
    account_[tenant.slot] = tenant.slot;
    allowed[tenant.slot] = std::min(tenant.terms.share->of(budget), budget);
    shared += allowed[tenant.slot];
  }
  const std::uint64_t whole = std::max(shared, budget);
  allowed[0] = whole - shared;
  std::array<std::uint64_t, order::kGroups> used{};
  for (std::size_t slot = 0; slot < uses.size(); ++slot)
    used[account_[slot]] += uses[slot].all();
  for (std::size_t account = 0; account < used.size(); ++account)
    share_[account] = beyond(used[account], scaled(allowed[account], may_be_used, whole));
}

TenantMask Shares::beyond_share() const noexcept {
  TenantMask mask = 0;
  if (!any_) return mask;
  for (std::size_t slot = 0; slot < account_.size(); ++slot)
    if (share_[account_[slot]] > 0) mask |= mask_of(static_cast<TenantSlot>(slot));
  return mask;
}

TenantMask Shares::beyond_quota() const noexcept {
  TenantMask mask = 0;
  for (std::size_t slot = 0; slot < quota_.size(); ++slot)
    if (quota_[slot] > 0) mask |= mask_of(static_cast<TenantSlot>(slot));
  return mask;
}

void Shares::evicted(TenantSlot tenant, std::uint64_t bytes) noexcept {
  share_[account_[tenant]] -= static_cast<std::int64_t>(bytes);
  quota_[tenant] -= static_cast<std::int64_t>(bytes);
}

}  // namespace kvcachefs
