// What of a mount, or of a part of it, is not on the pool yet. For `kvcachefs flush`.
//
// Any thread; a look takes some tenths of a second at most.
#pragma once

#include <cstdint>
#include <string_view>

#include "fs/node/core.h"

namespace kvcachefs {

struct Unflushed {
  std::uint64_t files = 0;  // closed ones that the pool does not have, or not as they are here
  std::uint64_t closing =
      0;  // the same of those whose RELEASE is under way (fs/node/closing.h)
  std::uint64_t removed = 0;      // names that were taken away here and are still there
  std::uint64_t directories = 0;  // that the pool does not have
  // Files and directories whose owner or mode was changed here, or which were told something here, that is not there yet.
  std::uint64_t owners = 0;
  bool more = false;         // that many at least
  Error stopped_for{0, ""};  // as PoolCounts
  // Of the whole mount, since it began, as PoolCounts.
  std::uint64_t skipped = 0;
  std::uint64_t obstructed = 0;
};

// `path`: relative to the root; the file, or all below the directory. `before`: files that were made from here on do not count.
// Errors: EIO, EBADMSG.
Result<Unflushed> count_unflushed(Core& core, std::string_view path, InodeNumber before);

}  // namespace kvcachefs
