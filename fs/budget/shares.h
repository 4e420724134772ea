// Who has more than his share of the budget, or than his quota: arithmetic, no I/O.
//
// Tenants without a share, and files that are nobody's, have together what the shares leave. Shares are
// cut down in proportion when they are more than the budget, and to what may be used in all by now, so
// that whenever room is needed somebody has more than his.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fs/budget/accounts.h"
#include "fs/budget/usage.h"
#include "fs/budget/victim_walk.h"
#include "fs/known/tenants.h"

namespace kvcachefs {

class Shares {
 public:
  Shares() = default;
  // `budget`: of all devices; `may_be_used`: what all tenants may have together by now.
  Shares(const std::vector<Tenant>& tenants, const TenantUses& uses, std::uint64_t budget,
         std::uint64_t may_be_used);

  // Those with more than their share; none: nobody has one.
  [[nodiscard]] TenantMask beyond_share() const noexcept;
  // Those with more than their quota.
  [[nodiscard]] TenantMask beyond_quota() const noexcept;
  // So much of a tenant's has gone.
  void evicted(TenantSlot tenant, std::uint64_t bytes) noexcept;

 private:
  Accounts accounts_;
  // Bytes beyond; negative: within. Of shares by account.
  std::array<std::int64_t, order::kGroups> share_{};
  std::array<std::int64_t, order::kGroups> quota_{};
};

}  // namespace kvcachefs
