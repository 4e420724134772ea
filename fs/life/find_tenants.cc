#include "fs/life/find_tenants.h"

#include <vector>

#include "fs/known/tenants.h"

namespace kvcachefs {

Result<void> find_tenants(Core& core) {
  if (!core.catalog.is_told_policy()) return {};
  std::vector<InodeNumber> owners;
  TRY(core.catalog.each_xattr_owner([&](InodeNumber number) {
    owners.push_back(number);
    return true;
  }));
  bool any = false;
  for (const InodeNumber number : owners) {
    const TenantTerms terms = TRY(own_terms(core.catalog, number));
    if (!terms.any()) continue;
    core.knowledge.tenants().put(number, terms);
    any = true;
  }
  if (any) core.knowledge.places().changed();
  return {};
}

}  // namespace kvcachefs
