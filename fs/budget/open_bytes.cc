#include "fs/budget/open_bytes.h"

namespace kvcachefs {

void OpenBytes::Hold::end() noexcept {
  if (OpenBytes* const of = std::exchange(of_, nullptr); of != nullptr) of->close(open_);
}

void OpenBytes::set_most_bytes(std::uint64_t all, const TenantBytes& of_tenants) {
  const std::lock_guard lock(mutex_);
  all_.most = all;
  for (std::size_t slot = 0; slot < others_.size(); ++slot)
    others_[slot].most = of_tenants[slot];
}

std::optional<OpenBytes::Hold> OpenBytes::open(const Open& open) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = held_.try_emplace({open.inode, open.user});
  Held& held = at->second;
  if (is_new) {
    UserBytes& others = others_[open.tenant];
    const bool may = all_.lets_in(open.user, open.bytes) &&
                     (open.is_owner || others.lets_in(open.user, open.bytes));
    if (!may) {
      held_.erase(at);
      return std::nullopt;
    }
    held.open = open;
    all_.add(open.user, open.bytes);
    if (!open.is_owner) others.add(open.user, open.bytes);
  }
  ++held.descriptors;
  return Hold(*this, open);
}

void OpenBytes::close(const Open& open) {
  const std::lock_guard lock(mutex_);
  const auto at = held_.find({open.inode, open.user});
  Held& held = at->second;
  if (--held.descriptors > 0) return;
  all_.take(open.user, held.open.bytes);
  if (!held.open.is_owner) others_[held.open.tenant].take(open.user, held.open.bytes);
  held_.erase(at);
}

}  // namespace kvcachefs
