// A flush of a mount, or of a part of the mount, waits for the disk, then for the pool.
#pragma once

#include <cstdint>

#include "fs/life/unsealed.h"
#include "fs/pool/unflushed.h"

namespace kvcachefs {

struct Flush {
  FlushPoint since;
  Unsealed unsealed;
  bool is_syncing = false;  // seals and names are in the catalog, and not on the disk yet
  std::uint64_t poisoned =
      0;  // files of the whole mount, since it began, that were not written in full
  bool has_pool = false;
  bool publishes = false;  // on the pool; false: the rest is empty
  Unflushed unflushed;
};

}  // namespace kvcachefs
