// Tenants as directories were told them, for the arithmetic of shares and quotas.
#pragma once

#include "fs/known/tenants.h"

namespace kvcachefs::testing {

inline Tenant with_share(TenantSlot slot, std::uint32_t percent) {
  return {.slot = slot,
          .directory = slot + 100U,
          .terms = {.share = SizeLimit{.bytes = 0, .percent = percent}, .quota = {}}};
}

inline Tenant with_quota(TenantSlot slot, std::uint64_t bytes) {
  return {.slot = slot, .directory = slot + 100U, .terms = {.share = {}, .quota = bytes}};
}

}  // namespace kvcachefs::testing
