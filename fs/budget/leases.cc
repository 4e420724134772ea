#include "fs/budget/leases.h"

#include <algorithm>

namespace kvcachefs {

void Leases::set_most_bytes(std::uint64_t all, const TenantBytes& of_tenants) {
  const std::lock_guard lock(mutex_);
  most_bytes_ = all;
  for (std::size_t slot = 0; slot < tenants_.size(); ++slot)
    tenants_[slot].most_bytes = of_tenants[slot];
}

void Leases::grant(const Answer& answer, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  end_past(now_ns);
  Answer granted = answer;
  if (const auto at = leases_.find(answer.inode); at != leases_.end()) {
    // A lookup after an open does not make it weaker.
    granted.opened = granted.opened || at->second.answer.opened;
    end(at);
  }
  add(granted, now_ns);
  Tenant& tenant = tenants_[granted.tenant];
  while (tenant.most_bytes > 0 && tenant.bytes > tenant.most_bytes)
    if (!end_one_of(tenant, granted.inode)) break;
  while (is_too_much())
    if (!end_one_of(heaviest(), granted.inode)) break;
}

void Leases::add(const Answer& answer, std::int64_t now_ns) {
  const std::uint64_t bytes_a_lease = std::max<std::uint64_t>(most_bytes_ / kMostLeases, 1);
  Tenant& tenant = tenants_[answer.tenant];
  Holder& holder = tenant.holders[answer.user];
  Order& own = holder.of(answer.opened);
  Lease lease{.until_ns = now_ns + lease_ns_,
              .answer = answer,
              .weight = 1 + answer.bytes / bytes_a_lease,
              .in_all = all_.insert(all_.end(), answer.inode),
              .in_holder = own.insert(own.end(), answer.inode)};
  weigh(tenant, answer.user, holder.weight + lease.weight);
  bytes_ += answer.bytes;
  tenant.bytes += answer.bytes;
  leases_.emplace(answer.inode, std::move(lease));
}

void Leases::weigh(Tenant& tenant, uid_t user, std::uint64_t weight) {
  const auto at = tenant.holders.find(user);
  tenant.by_weight.erase({at->second.weight, user});
  at->second.weight = weight;
  if (weight > 0) {
    tenant.by_weight.emplace(weight, user);
  } else {
    tenant.holders.erase(at);
  }
}

bool Leases::end_one_of(Tenant& tenant, InodeNumber granted) {
  if (tenant.by_weight.empty()) return false;
  const Holder& holder = tenant.holders.at(tenant.by_weight.rbegin()->second);
  for (const Order* order : {&holder.looked_up, &holder.opened}) {
    if (order->empty() || order->front() == granted) continue;
    ++ended_early_;
    end(leases_.find(order->front()));
    return true;
  }
  return false;
}

// The tenant with the heaviest of all holders.
Leases::Tenant& Leases::heaviest() noexcept {
  const auto weight_of = [](const Tenant& tenant) {
    return tenant.by_weight.empty() ? 0 : tenant.by_weight.rbegin()->first;
  };
  return *std::max_element(tenants_.begin(), tenants_.end(),
                           [&](const Tenant& one, const Tenant& other) {
                             return weight_of(one) < weight_of(other);
                           });
}

bool Leases::holds(InodeNumber inode, std::int64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  const auto at = leases_.find(inode);
  return at != leases_.end() && at->second.until_ns > now_ns;
}

void Leases::forget(InodeNumber inode) {
  const std::lock_guard lock(mutex_);
  if (const auto at = leases_.find(inode); at != leases_.end()) end(at);
}

Leases::Counts Leases::counts(std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  end_past(now_ns);
  return {.leases = leases_.size(), .bytes = bytes_, .ended_early = ended_early_};
}

bool Leases::is_too_much() const noexcept {
  return leases_.size() > kMostLeases || (most_bytes_ > 0 && bytes_ > most_bytes_);
}

void Leases::end(Table::iterator at) {
  const Lease& lease = at->second;
  const Answer& answer = lease.answer;
  Tenant& tenant = tenants_[answer.tenant];
  Holder& holder = tenant.holders.at(answer.user);
  all_.erase(lease.in_all);
  holder.of(answer.opened).erase(lease.in_holder);
  bytes_ -= answer.bytes;
  tenant.bytes -= answer.bytes;
  weigh(tenant, answer.user, holder.weight - lease.weight);
  leases_.erase(at);
}

void Leases::end_past(std::int64_t now_ns) {
  while (!all_.empty()) {
    const auto at = leases_.find(all_.front());
    if (at->second.until_ns > now_ns) return;
    end(at);
  }
}

}  // namespace kvcachefs
