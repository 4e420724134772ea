// Counts the files of a mount, or of a part of the mount, that a power cut may still take. For `kvcachefs flush`.
//
// Any thread; a count takes some tenths of a second at most.
#pragma once

#include <cstdint>
#include <string_view>

#include "fs/node/core.h"

namespace kvcachefs {

// The files that a flush waits for, as of its first look.
struct FlushPoint {
  // Files that were made from here on are not waited for; 0: there was no look yet.
  InodeNumber before = 0;
  // Of Core::write_opens: files that were opened for writing later are not waited for.
  std::uint64_t opened = 0;
  // Of Sealer::want_sync().
  std::uint64_t sync = 0;
};

struct Unsealed {
  std::uint64_t files = 0;  // that no program has open for writing
  // A descriptor was closed, and as it seems the last one: their RELEASE is under way.
  std::uint64_t closing = 0;
  // A program writes to them, or has opened them for writing since the flush began.
  std::uint64_t open = 0;
  bool more = false;  // the count ended early: there may be more files of each kind
};

// `top`: relative to the root; the file, or all below the directory. Errors: EIO, EBADMSG.
Result<Unsealed> count_unsealed(Core& core, std::string_view top, const FlushPoint& since);

}  // namespace kvcachefs
