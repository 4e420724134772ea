// Leases: what answered a lookup, a stat or an open by name stays readable for a while after it.
//
// A lease is on an inode and ends by itself. An open makes a firm one. Those of lookups alone may end
// early: when all leases together are on more bytes than half of the budget, or when there are too many
// to remember, the oldest ones of the user who asks go first, then the oldest of all.
//
// Any thread; the lock is a leaf. Memory: some 150 bytes a lease, kMostLeases of them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <unordered_map>

#include "metadata/record.h"

namespace kvcachefs {

class Leases {
 public:
  // 4,000 files looked up a second, for a minute.
  static constexpr std::size_t kMostLeases = 262'144;

  // `lease_ns`: how long one lasts.
  explicit Leases(std::int64_t lease_ns) : lease_ns_(lease_ns) {}

  // Half of the budget; 0: no bound.
  void set_most_bytes(std::uint64_t bytes);

  // A positive answer at `now_ns` (a monotonic clock) about a file that occupies `bytes`.
  void grant(InodeNumber inode, uid_t user, bool opened, std::uint64_t bytes,
             std::int64_t now_ns);
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
  // Oldest answer first; all of one list last equally long, so that is the order of their ends, too.
  using Order = std::list<InodeNumber>;
  struct Lease {
    std::int64_t until_ns = 0;
    std::uint64_t bytes = 0;
    uid_t user = 0;
    bool opened = false;
    Order::iterator in_all;   // of `looked_up_`, or of `opened_`
    Order::iterator in_user;  // of lookups alone
  };
  using Table = std::unordered_map<InodeNumber, Lease>;

  void end(Table::iterator at);
  void end_past(Order& order, std::int64_t now_ns);
  [[nodiscard]] bool is_too_much() const noexcept;

  const std::int64_t lease_ns_;
  mutable std::mutex mutex_;
  // Under mutex_.
  Table leases_;
  Order looked_up_;
  Order opened_;
  std::unordered_map<uid_t, Order> of_user_;
  std::uint64_t bytes_ = 0;
  std::uint64_t most_bytes_ = 0;
  std::uint64_t ended_early_ = 0;
};

}  // namespace kvcachefs
