// How a file stands to what the pool has at its name. The caller holds the inode's lock.
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

// Whether other bytes than those of `copy` are here, and will be published. Errors: EIO, EBADMSG.
[[nodiscard]] Result<bool> is_newer(Core& core, const Inode& inode, const PoolCopy& copy);

// Whether without it its name would stand for an older file on the pool, as if it had never been written. Of a block one is
// as good as the other.
enum class HidesOlder : std::uint8_t {
  kNo,
  kMaybe,  // it waits to be published, and whether the pool has one was not to be known when it was made
  kYes,
};
// Errors: the same.
[[nodiscard]] Result<HidesOlder> hides_older(Core& core, const Inode& inode);

}  // namespace kvcachefs
