// The step that all evictions share: one file that is stored and may go loses its names.
#pragma once

#include <cstdint>
#include <functional>

#include "fs/budget/usage.h"
#include "fs/life/drop_reason.h"
#include "fs/life/obstacle.h"
#include "fs/node/core.h"

namespace kvcachefs {

struct Eviction {
  Obstacle obstacle = Obstacle::kNone;  // kNone: it has gone
  std::uint32_t device = 0;             // what its copy was on; kNoDevice: on the pool alone
  std::uint64_t bytes = 0;              // and occupies until the reaper comes
};

// `reason` says what stands against it: a person who asks is not held up by a lease. `wanted`: of the copy,
// asked last, under the inode's lock; false: nothing happens (Obstacle::kUnwanted). Where the bytes are on the pool
// alone, that is none: kNoDevice.
//
// From the moment at which nothing stands against it, nobody is told any more that the file is there, and
// who makes one of its name waits for its end: a name is either a hit that can be opened, or a miss.
// Errors: those of the catalog, of Knowledge::treatment(); the file is as it was then.
Result<Eviction> evict_file(Core& core, const InodePtr& inode, DropReason reason,
                            const std::function<bool(const SealedCopy&)>& wanted = {});

}  // namespace kvcachefs
