// Leases: what answered a lookup, a stat or an open by name stays readable for a while after it.
//
// A lease is on an inode and ends by itself. All together are on half of the budget at most,
// and those on a tenant's files on half of its quota. Beyond that, or when there are too many
// to remember, some end early: of the user who holds most of what is too much, the oldest of
// those that lookups made; when he has none of these, the oldest that an open made. What was
// just answered keeps its lease: one large file may be more than the bound.
//
// Any thread; the lock is a leaf. Memory: some 150 bytes a lease, kMostLeases of them.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "fs/known/tenants.h"
#include "metadata/record.h"

namespace kvcachefs {

class Leases {
 public:
  // 4,000 files looked up a second, for a minute.
  static constexpr std::size_t kMostLeases = 262'144;
  using TenantBytes = std::array<std::uint64_t, order::kGroups>;

  // A positive answer about a file.
  struct Answer {
    InodeNumber inode = 0;
    uid_t user = 0;  // who has asked
    TenantSlot tenant = 0;
    bool opened = false;
    std::uint64_t bytes = 0;  // that the file occupies here
  };

  // `lease_ns`: how long one lasts.
  explicit Leases(std::int64_t lease_ns) : lease_ns_(lease_ns) {}

  // Half of the budget, and by tenant half of its quota; 0: no bound. They hold from the next
  // answer on.
  void set_most_bytes(std::uint64_t all, const TenantBytes& of_tenants = {});

  // `now_ns`: of a monotonic clock.
  void grant(const Answer& answer, std::int64_t now_ns);
  [[nodiscard]] bool holds(InodeNumber inode, std::int64_t now_ns) const;
  // Its last name has gone.
  void forget(InodeNumber inode);

  struct Counts {
    std::uint64_t leases = 0;
    std::uint64_t bytes = 0;
    std::uint64_t ended_early = 0;
  };
  [[nodiscard]] Counts counts(std::int64_t now_ns);

 private:
  // Oldest answer first; all leases last equally long, so that is the order of their ends, too.
  using Order = std::list<InodeNumber>;
  // The leases of one user on one tenant's files.
  struct Holder {
    Order looked_up;
    Order opened;
    std::uint64_t weight = 0;
    [[nodiscard]] Order& of(bool is_opened) noexcept { return is_opened ? opened : looked_up; }
  };
  struct Lease {
    std::int64_t until_ns = 0;
    Answer answer;
    // Its part of both bounds, of bytes and of leases, as they were when it was granted.
    std::uint64_t weight = 0;
    Order::iterator in_all;
    Order::iterator in_holder;
  };
  struct Tenant {
    std::unordered_map<uid_t, Holder> holders;
    std::set<std::pair<std::uint64_t, uid_t>> by_weight;
    std::uint64_t bytes = 0;
    std::uint64_t most_bytes = 0;
  };
  using Table = std::unordered_map<InodeNumber, Lease>;

  void add(const Answer& answer, std::int64_t now_ns);
  void end(Table::iterator at);
  void end_past(std::int64_t now_ns);
  static void weigh(Tenant& tenant, uid_t user, std::uint64_t weight);
  // False: there is nothing but `granted`.
  bool end_one_of(Tenant& tenant, InodeNumber granted);
  [[nodiscard]] bool is_too_much() const noexcept;
  [[nodiscard]] Tenant& heaviest() noexcept;

  const std::int64_t lease_ns_;
  mutable std::mutex mutex_;
  // Under mutex_.
  Table leases_;
  Order all_;
  std::array<Tenant, order::kGroups> tenants_;
  std::uint64_t bytes_ = 0;
  std::uint64_t most_bytes_ = 0;
  std::uint64_t ended_early_ = 0;
};

}  // namespace kvcachefs
