#include "fs/budget/leases.h"

namespace kvcachefs {

void Leases::set_most_bytes(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  most_bytes_ = bytes;
}

void Leases::grant(InodeNumber inode, uid_t user, bool opened, std::uint64_t bytes,
                   std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  end_past(looked_up_, now_ns);
  end_past(opened_, now_ns);
  if (const auto at = leases_.find(inode); at != leases_.end()) {
    // A lookup after an open does not make it weaker.
    opened = opened || at->second.opened;
    end(at);
  }
  Lease& lease = leases_[inode];
  lease = {.until_ns = now_ns + lease_ns_,
           .bytes = bytes,
           .user = user,
           .opened = opened,
           .in_all = {},
           .in_user = {}};
  Order& all = opened ? opened_ : looked_up_;
  lease.in_all = all.insert(all.end(), inode);
  if (!opened) {
    Order& own = of_user_[user];
    lease.in_user = own.insert(own.end(), inode);
  }
  bytes_ += bytes;
  while (is_too_much()) {
    const auto own = of_user_.find(user);
    InodeNumber oldest = 0;
    if (own != of_user_.end()) {
      oldest = own->second.front();
    } else if (!looked_up_.empty()) {
      oldest = looked_up_.front();
    } else if (leases_.size() > kMostLeases) {
      oldest = opened_.front();
    } else {
      return;  // what was opened stays
    }
    ++ended_early_;
    end(leases_.find(oldest));
  }
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
  end_past(looked_up_, now_ns);
  end_past(opened_, now_ns);
  return {.leases = leases_.size(), .bytes = bytes_, .ended_early = ended_early_};
}

bool Leases::is_too_much() const noexcept {
  return leases_.size() > kMostLeases || (most_bytes_ > 0 && bytes_ > most_bytes_);
}

void Leases::end(Table::iterator at) {
  const Lease& lease = at->second;
  bytes_ -= lease.bytes;
  if (lease.opened) {
    opened_.erase(lease.in_all);
  } else {
    looked_up_.erase(lease.in_all);
    const auto own = of_user_.find(lease.user);
    own->second.erase(lease.in_user);
    if (own->second.empty()) of_user_.erase(own);
  }
  leases_.erase(at);
}

void Leases::end_past(Order& order, std::int64_t now_ns) {
  while (!order.empty()) {
    const auto at = leases_.find(order.front());
    if (at->second.until_ns > now_ns) return;
    end(at);
  }
}

}  // namespace kvcachefs
