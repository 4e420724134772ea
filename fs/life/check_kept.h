// Whether a file may become one that must stay, or would take the room that a quota or others'
// shares leave to others.
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

// The caller holds the inode's lock. Errors: EDQUOT, ENOSPC (Budget::check_staying()), those of
// the backing file.
Result<void> check_kept(Core& core, Inode& inode);

// The same of one that gets a name of another tenant, where it must stay. The caller holds the
// inode's lock.
Result<void> check_moved(Core& core, Inode& inode, TenantSlot to);

}  // namespace kvcachefs
