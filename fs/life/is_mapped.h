// Whether a file that nobody has open is mapped still (fs/budget/mapped_files.h).
#pragma once

#include <sys/types.h>

#include "fs/node/core.h"

namespace kvcachefs {

// Devices::is_used(); false where that fails: what is lost is others' affair. Errors: EBUSY, the
// daemon reads it itself (it is being sealed, verified or published), and it has to be asked
// again.
Result<bool> is_used(Core& core, std::uint32_t device, ObjectId object);

// The caller holds the inode's lock, knows that its backing file was in use just now (this
// waits for no disk), and that nobody has it open. Where the kernel does not map backing files:
// false. Errors: as is_used().
Result<bool> is_mapped(Core& core, Inode& inode);

// Counts as open what was found mapped when it was to be evicted. The caller holds the inode's
// lock.
void note_mapped(Core& core, const SealedCopy& copy, InodeNumber inode);

// Once a second: looks whether what was closed is mapped. What lost its last name a while ago
// counts as its tenant's as long as the kernel has it, for somebody has it mapped, or open
// without reading (O_PATH). Some microseconds a file; in turns where there are many. Takes
// inodes' locks.
void look_at_mapped(Core& core);

// Of what one user has closed, when he may open no more: some of it may be mapped no longer.
// The same for fewer files. True: some were not.
bool look_at_mapped_of(Core& core, uid_t user);

}  // namespace kvcachefs
