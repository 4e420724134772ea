#include "fs/known/tenants.h"

namespace kvcachefs {
namespace {

// Less would not hold one block of most models.
constexpr std::uint64_t kSmallest = kMiB;

}  // namespace

// ERANGE would mean something else to who sets an xattr.
Result<SizeLimit> parse_share(std::string_view text) {
  const Result<SizeLimit> share = parse_size_limit(text, kSmallest);
  if (!share.ok()) return fail(EINVAL, "no share");
  return *share;
}

Result<std::uint64_t> parse_quota(std::string_view text) {
  const Result<std::uint64_t> quota = parse_size(text, kSmallest);
  if (!quota.ok()) return fail(EINVAL, "no quota");
  return *quota;
}

Result<TenantTerms> own_terms(Catalog& catalog, InodeNumber directory) {
  TenantTerms terms;
  if (const auto text = TRY(catalog.find_xattr(directory, kShareXattr))) {
    const auto share = parse_share(*text);
    if (share.ok()) terms.share = *share;
  }
  if (const auto text = TRY(catalog.find_xattr(directory, kQuotaXattr))) {
    const auto quota = parse_quota(*text);
    if (quota.ok()) terms.quota = *quota;
  }
  return terms;
}

// The caller holds mutex_.
TenantSlot Tenants::slot_for(InodeNumber directory) const {
  TenantSlot free = 0;
  for (std::size_t slot = kMostTenants; slot > 0; --slot) {
    if (of_[slot].directory == directory) return static_cast<TenantSlot>(slot);
    if (of_[slot].directory == 0) free = static_cast<TenantSlot>(slot);
  }
  return free;
}

TenantSlot Tenants::put(InodeNumber directory, const TenantTerms& terms) {
  const std::lock_guard lock(mutex_);
  const TenantSlot slot = slot_for(directory);
  if (slot == 0) return 0;
  if (of_[slot].directory == 0) {
    of_slot_[slot].hits.store(0);
    of_slot_[slot].misses.store(0);
  }
  of_[slot] = {.slot = slot, .directory = directory, .terms = terms};
  had_any_.store(true);
  return slot;
}

void Tenants::remove(InodeNumber directory) {
  const std::lock_guard lock(mutex_);
  const TenantSlot slot = slot_for(directory);
  if (slot != 0 && of_[slot].directory == directory) of_[slot] = {};
}

bool Tenants::has_room_for(InodeNumber directory) const {
  const std::lock_guard lock(mutex_);
  return slot_for(directory) != 0;
}

std::optional<Tenant> Tenants::find(TenantSlot slot) const {
  const std::lock_guard lock(mutex_);
  const Tenant& tenant = of_[slot];
  return tenant.directory != 0 ? std::optional(tenant) : std::nullopt;
}

std::vector<Tenant> Tenants::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<Tenant> out;
  for (const Tenant& tenant : of_)
    if (tenant.directory != 0) out.push_back(tenant);
  return out;
}

}  // namespace kvcachefs
