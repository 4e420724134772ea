// Takes back bytes that a program has no room for, and that the kernel has written for the
// program without asking: its writes to a file that was opened long before are seen by nobody
// (passthrough).
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

// Of a file that is being written. A new one, and one without a name, loses all of its bytes;
// any other what was added since it was published, or synced, last, and nothing else: what was
// there before stays, however much it is. Who writes it gets `code` (EDQUOT, ENOSPC) from close
// and fsync; a new one is then a miss. It may grow again at once: the caller comes back.
// Returns whether it has lost anything: not while its disk takes no writes, or when nobody
// writes it any more. Takes the inode's lock. Errors: those of Tier::open() and of the disk.
Result<bool> give_up_bytes(Core& core, Inode& inode, int code);

// For the next close or fsync: says `code` once, as a disk's error is said, and cuts the file
// back once more, for what was written since would have a hole before it. Takes the inode's
// lock. Errors: `code`, and as above.
Result<void> check_given_up(Core& core, Inode& inode);

}  // namespace kvcachefs
