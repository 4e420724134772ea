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

// The inode, which is on the pool as `shared`, gets the owner and the mode that `said` has for it. Nothing happens where
// that speaks of another file, or one was given here since then. Any thread, without the inode's lock. Errors: EIO,
// EBADMSG.
Result<void> take_owner(Core& core, Inode& inode, const SharedName& shared,
                        const PoolSums& said);

}  // namespace kvcachefs
