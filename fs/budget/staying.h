// How much each tenant may have of what nobody can evict: what is kept, and what is being
// written, open or not sealed yet (TenantUse::stays()). Arithmetic, no I/O.
//
// Two bounds. A quota is one: what stays cannot be evicted to get below it. The other is what
// the others' shares promise them: where anybody has a share, a tenant may have as much of it
// as its own share, and those without a share together what the shares leave. What is being
// written goes or is sealed in a while, and may be some more than that. Beside shares each file
// that stays is at least as many bytes as the filesystems below have for an inode, or small
// ones would take all of the inodes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fs/budget/accounts.h"
#include "fs/budget/usage.h"
#include "fs/known/tenants.h"

namespace kvcachefs {

class Staying {
 public:
  // Bytes that a tenant may have more of; negative: so much too many. INT64_MAX: as many as
  // there are.
  struct Left {
    std::int64_t of_quota = INT64_MAX;
    std::int64_t of_share = INT64_MAX;
    // The two bounds, 0 where there is none.
    std::uint64_t quota = 0;
    std::uint64_t share = 0;
  };

  // Nobody is bounded.
  Staying() = default;
  // `budget`: of all devices. `inode_bytes`: of it for each inode of the filesystems below; 0:
  // they make inodes as they are needed.
  Staying(const std::vector<Tenant>& tenants, const TenantUses& uses, std::uint64_t budget,
          std::uint64_t inode_bytes = 0);

  [[nodiscard]] const Left& left(TenantSlot tenant) const noexcept { return left_[tenant]; }
  // Files that are being written may be that much more than the share.
  [[nodiscard]] std::int64_t slack() const noexcept { return slack_; }
  // Tenants whose files must not grow: EDQUOT, and ENOSPC.
  [[nodiscard]] TenantMask beyond_quota() const noexcept;
  [[nodiscard]] TenantMask beyond_share() const noexcept;
  // Tenants that may come to that soon: the daemon serves writers that open their files now.
  [[nodiscard]] TenantMask near() const noexcept;
  // Tenants that are an eighth beyond: the kernel serves a writer that was let in before.
  [[nodiscard]] TenantMask far_beyond_quota() const noexcept;
  [[nodiscard]] TenantMask far_beyond_share() const noexcept;

 private:
  std::array<Left, order::kGroups> left_{};
  std::int64_t slack_ = 0;
};

}  // namespace kvcachefs
