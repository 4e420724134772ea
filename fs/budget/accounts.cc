#include "fs/budget/accounts.h"

#include <algorithm>

namespace kvcachefs {

Accounts::Accounts(const std::vector<Tenant>& tenants, std::uint64_t budget) {
  std::uint64_t shared = 0;
  for (const Tenant& tenant : tenants) {
    if (!tenant.terms.share) continue;
    any_share_ = true;
    of_[tenant.slot] = tenant.slot;
    allowed_[tenant.slot] = std::min(tenant.terms.share->of(budget), budget);
    shared += allowed_[tenant.slot];
  }
  whole_ = std::max(shared, budget);
  allowed_[0] = whole_ - shared;
}

std::uint64_t Accounts::part_of(std::uint64_t bytes, TenantSlot account) const noexcept {
  if (whole_ == 0) return 0;
  return static_cast<std::uint64_t>(static_cast<long double>(allowed_[account]) *
                                    static_cast<long double>(bytes) /
                                    static_cast<long double>(whole_));
}

}  // namespace kvcachefs
