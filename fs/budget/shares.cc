#include "fs/budget/shares.h"

namespace kvcachefs {

Shares::Shares(const std::vector<Tenant>& tenants, const TenantUses& uses, std::uint64_t budget,
               std::uint64_t may_be_used)
    : accounts_(tenants, budget) {
  for (const Tenant& tenant : tenants)
    if (tenant.terms.quota)
      quota_[tenant.slot] = beyond(uses[tenant.slot].all(), *tenant.terms.quota);
  const Accounts::Bytes used =
      accounts_.used(uses, [](const TenantUse& use) { return use.all(); });
  for (std::size_t account = 0; account < used.size(); ++account)
    share_[account] =
        beyond(used[account], accounts_.part_of(may_be_used, static_cast<TenantSlot>(account)));
}

TenantMask Shares::beyond_share() const noexcept {
  if (!accounts_.any_share()) return 0;
  return tenants_that([this](TenantSlot slot) { return share_[accounts_.of(slot)] > 0; });
}

TenantMask Shares::beyond_quota() const noexcept {
  return tenants_that([this](TenantSlot slot) { return quota_[slot] > 0; });
}

void Shares::evicted(TenantSlot tenant, std::uint64_t bytes) noexcept {
  share_[accounts_.of(tenant)] -= static_cast<std::int64_t>(bytes);
  quota_[tenant] -= static_cast<std::int64_t>(bytes);
}

}  // namespace kvcachefs
