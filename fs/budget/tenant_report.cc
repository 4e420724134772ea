#include "fs/budget/tenant_report.h"

#include <utility>

#include "fs/known/place.h"
#include "fs/node/core.h"

namespace kvcachefs {

std::vector<TenantReport> tenant_reports(Core& core) {
  std::uint64_t budget = 0;
  for (std::uint32_t index = 0; index < core.devices->indices(); ++index)
    budget += core.budget.room_on(index).room.budget;
  const TenantUses uses = core.budget.usage().by_tenant();
  std::vector<TenantReport> out;
  for (const Tenant& tenant : core.knowledge.tenants().list()) {
    Result<std::string> path = first_path(core.catalog, tenant.directory);
    if (!path.ok()) continue;
    TenantReport report{.path = *std::move(path),
                        .share = {},
                        .quota = tenant.terms.quota,
                        .use = uses[tenant.slot],
                        .is_counted = !core.is_recounting.load()};
    if (tenant.terms.share) report.share = tenant.terms.share->of(budget);
    const TenantLookups lookups = core.knowledge.tenants().lookups(tenant.slot);
    report.hits = lookups.hits;
    report.misses = lookups.misses;
    out.push_back(std::move(report));
  }
  return out;
}

}  // namespace kvcachefs
