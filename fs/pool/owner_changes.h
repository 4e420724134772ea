// Owners and modes of what is on the pool: who changes one changes it for all nodes.
//
//     chmod, chown here ──► catalog: an owner change ──► the record on the pool, others are told (owner_teller.h)
//     told by another node, or asked for ──► the inode here has what the record says (owner_refresh.h)
//
// One that was given here and is not on the pool yet holds here, whatever the record says.
#pragma once

#include <optional>

#include "backend/pool/pool_format.h"
#include "fs/node/core.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

// Adds to the edit that others are to hear of the owner and the mode of `next`, which are not those of the inode. Does
// nothing for what is not on the pool under this name. The caller holds the inode's lock. Errors: EIO, EBADMSG.
Result<void> put_owner_change(Core& core, const Inode& inode,
                              const std::optional<SharedName>& name, const InodeRecord& next,
                              Edit& edit);

struct Owner {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t mode = 0;  // permission bits
  bool operator==(const Owner&) const = default;
};
// Without the inode's lock.
[[nodiscard]] Owner owner_of(Inode& inode);

// The inode, which is on the pool as `shared`, gets the owner and the mode that `said` has for it. `asked`: its own, before
// the pool was asked. Nothing happens where the record speaks of another file. Any thread, without the inode's lock. Errors:
// EAGAIN (another was given here since then: what the record says by now is not known), EIO, EBADMSG.
Result<void> take_owner(Core& core, Inode& inode, const Owner& asked, const SharedName& shared,
                        const PoolSums& said);

}  // namespace kvcachefs
