// Tenants: directories that were told a share of the budget, or a quota (user.kvcachefs.share and
// user.kvcachefs.quota). A file belongs to the nearest such directory above its first name; all others
// belong to nobody, slot 0.
//
//   share   while room is needed, what a tenant has up to its share stays as long as anybody has more than
//           theirs: "200GiB", or "25%" of the budget of all devices
//   quota   what it has beyond this goes at once: "500GiB"
//
// What directories are told is in their xattrs; here are those that somebody has asked about since the
// start. Any thread; the lock is a leaf.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/base/units.h"
#include "fs/order/name_record.h"
#include "metadata/catalog.h"

namespace kvcachefs {

inline constexpr std::string_view kShareXattr = "user.kvcachefs.share";
inline constexpr std::string_view kQuotaXattr = "user.kvcachefs.quota";
[[nodiscard]] constexpr bool is_term(std::string_view xattr) noexcept {
  return xattr == kShareXattr || xattr == kQuotaXattr;
}

// Its group in the order of eviction (fs/order/name_record.h), too.
using TenantSlot = order::Group;
// Slot 0 is nobody's. The last one is that of orphans, whoever's they were: files of policy `process` whose
// process has ended. They go first.
inline constexpr TenantSlot kOrphans = order::kGroups - 1;
inline constexpr std::size_t kMostTenants = order::kGroups - 2;

// Tenants by their slots' bits.
using TenantMask = std::uint64_t;
inline constexpr TenantMask kAllTenants = ~TenantMask{0};
static_assert(order::kGroups == 64);
[[nodiscard]] constexpr TenantMask mask_of(TenantSlot slot) noexcept {
  return TenantMask{1} << slot;
}

struct TenantTerms {
  std::optional<SizeLimit> share;
  std::optional<std::uint64_t> quota;  // bytes
  [[nodiscard]] bool any() const noexcept { return share || quota; }
};

// Errors: EINVAL (no size, or below 1 MiB).
Result<SizeLimit> parse_share(std::string_view text);
Result<std::uint64_t> parse_quota(std::string_view text);
// What a directory was told itself. Errors: EIO.
Result<TenantTerms> own_terms(Catalog& catalog, InodeNumber directory);

struct Tenant {
  TenantSlot slot = 0;
  InodeNumber directory = 0;
  TenantTerms terms;
};

// Of blocks.
struct TenantLookups {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
};

class Tenants {
 public:
  // Its slot, from now on; 0: all are taken.
  TenantSlot put(InodeNumber directory, const TenantTerms& terms);
  // It has gone, or was told that it is none any more.
  void remove(InodeNumber directory);
  // Whether put() of it would find a slot.
  [[nodiscard]] bool has_room_for(InodeNumber directory) const;
  // Whether there was one, or an orphan, since the start: all files are nobody's otherwise.
  [[nodiscard]] bool had_any() const noexcept { return had_any_.load(); }
  void has_orphans() noexcept { had_any_.store(true); }
  // By slot.
  [[nodiscard]] std::vector<Tenant> list() const;
  // nullopt: nobody has the slot.
  [[nodiscard]] std::optional<Tenant> find(TenantSlot slot) const;
  void looked_up(TenantSlot slot, bool hit, std::uint64_t times) noexcept {
    Counts& counts = of_slot_[slot];
    (hit ? counts.hits : counts.misses).fetch_add(times, std::memory_order_relaxed);
  }
  [[nodiscard]] TenantLookups lookups(TenantSlot slot) const noexcept {
    return {.hits = of_slot_[slot].hits.load(), .misses = of_slot_[slot].misses.load()};
  }

 private:
  [[nodiscard]] TenantSlot slot_for(InodeNumber directory) const;

  mutable std::mutex mutex_;
  std::array<Tenant, order::kGroups> of_{};  // directory 0: free; under mutex_
  std::atomic<bool> had_any_{false};
  struct alignas(64) Counts {
    std::atomic<std::uint64_t> hits{0};
    std::atomic<std::uint64_t> misses{0};
  };
  std::array<Counts, order::kGroups> of_slot_;
};

}  // namespace kvcachefs
