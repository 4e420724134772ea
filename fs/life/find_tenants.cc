#include "fs/life/find_tenants.h"

#include "fs/known/tenants.h"

namespace kvcachefs {

Result<void> find_tenants(Core& core) {
  if (!core.catalog.is_told_policy()) return {};
  bool any = false;
  for (const std::string_view name : {kShareXattr, kQuotaXattr}) {
    for (const InodeNumber directory :
         TRY(core.catalog.list_xattr_owners(name, kMostTenants))) {
      const TenantTerms terms = TRY(own_terms(core.catalog, directory));
      if (!terms.any()) continue;
      core.knowledge.tenants().put(directory, terms);
      any = true;
    }
  }
  if (any) core.knowledge.places().changed();
  return {};
}

}  // namespace kvcachefs
