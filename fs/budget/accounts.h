// The accounts of the budget, by what tenants were told: each tenant with a share has one of
// its own; those without a share, and files that are nobody's, have one together. Arithmetic,
// no I/O.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fs/budget/usage.h"
#include "fs/known/tenants.h"

namespace kvcachefs {

class Accounts {
 public:
  using Bytes = std::array<std::uint64_t, order::kGroups>;  // by account

  Accounts() = default;
  Accounts(const std::vector<Tenant>& tenants, std::uint64_t budget);

  // Whether anybody has a share: all are in account 0 otherwise.
  [[nodiscard]] bool any_share() const noexcept { return any_share_; }
  [[nodiscard]] TenantSlot of(TenantSlot tenant) const noexcept { return of_[tenant]; }
  // An account's part, by its share, of so many bytes. Shares are cut down in proportion when
  // they are more than the budget; account 0 has what they leave.
  [[nodiscard]] std::uint64_t part_of(std::uint64_t bytes, TenantSlot account) const noexcept;
  // `amount(use)` of an account's tenants together.
  template <class Amount>
  [[nodiscard]] Bytes used(const TenantUses& uses, Amount amount) const noexcept {
    Bytes used{};
    for (std::size_t slot = 0; slot < uses.size(); ++slot)
      used[of_[slot]] += amount(uses[slot]);
    return used;
  }

 private:
  std::array<TenantSlot, order::kGroups> of_{};
  Bytes allowed_{};
  std::uint64_t whole_ = 0;  // the sum of `allowed_`
  bool any_share_ = false;
};

// Bytes beyond a bound; negative: within it.
[[nodiscard]] constexpr std::int64_t beyond(std::uint64_t used, std::uint64_t bound) noexcept {
  return static_cast<std::int64_t>(used) - static_cast<std::int64_t>(bound);
}

// Those of whom `is(slot)` holds.
template <class Is>
[[nodiscard]] TenantMask tenants_that(Is is) noexcept {
  TenantMask mask = 0;
  for (std::size_t slot = 0; slot < order::kGroups; ++slot)
    if (is(static_cast<TenantSlot>(slot))) mask |= mask_of(static_cast<TenantSlot>(slot));
  return mask;
}

}  // namespace kvcachefs
