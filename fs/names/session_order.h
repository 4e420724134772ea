// The order of a session: session/<id>/ holds hard links to the session's prefix files, whose names
// are their positions.
#pragma once

#include <cstdint>
#include <vector>

#include "metadata/catalog.h"

namespace kvcachefs {

struct SessionEntry {
  std::uint32_t position = 0;
  InodeNumber inode = 0;
  bool operator==(const SessionEntry&) const = default;
};

// Four million tokens in blocks of 16.
inline constexpr std::size_t kMostSessionEntries = 1u << 18;

// The session's files in the order of their positions, which may have holes. A name that is no
// position (a decimal number of at most nine digits, without a 0 before it) or no regular file is
// passed over. Memory: 16 bytes an entry. Errors: E2BIG (more than `most`), EIO, EBADMSG.
Result<std::vector<SessionEntry>> session_order(Catalog& catalog, InodeNumber session,
                                                std::size_t most = kMostSessionEntries);

}  // namespace kvcachefs
