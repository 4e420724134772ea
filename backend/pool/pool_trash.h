// The trash of a pool: where a file lies that was evicted or removed, until no mount can need it any more.
//
// A file is renamed into the trash first, because another server may have told its users of the file a moment ago, and
// may be reading it: the file's handle leads to the bytes wherever the file lies. To remove or replace the file at once
// would cost these readers the file. A file leaves the trash when the longest lease is over, or earlier, the oldest
// first, when the trash has more than its share of the pool. A reader of a file that has left the trash gets ESTALE from
// the pool's server, as of any removed file: a miss at an open, EIO at a read of a large file that was still coming. It
// never gets other bytes, because a server gives the handle of a removed file to no other file, and because what is read
// is compared with the checksums that came with the file's name.
//
// Calls block, with a session of the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/base/random.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_session.h"

namespace kvcachefs {

// The share of the trash: a sixteenth of what the pool may hold. A file that was evicted is needed for a lease (60 s) and
// the 15 s in which all mounts hear of the eviction. To have more than a sixteenth of the pool in the trash by then,
// mounts must write the whole pool anew every 20 minutes; where they do not, no reader loses a file to this bound.
[[nodiscard]] constexpr std::uint64_t trash_share(std::uint64_t pool_bytes) noexcept {
  return pool_bytes / 16;
}
// And the most files in it: a walk over the trash is one over no more than these.
inline constexpr std::uint64_t kMostTrashFiles = 65'536;

struct PoolTrash {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;  // that they take
};

// Makes the directories of the trash for this hour and the next, and the one for when there is no room for others: what
// is evicted from a full pool finds them there. What cannot be made is not.
void make_trash_directories(PoolSession& session, UnixNanos now, Deadline deadline);

// Puts the file at `path` into the trash if it has this number still, and returns what it is there. `now`: by the
// server's clock; `number`: not used by this node in that second. Errors: ENOENT, ESTALE (another file stands there by
// now: it stays), and those of any call.
[[nodiscard]] Result<PoolStatus> put_into_trash(PoolSession& session, std::string_view path,
                                                std::uint64_t fileid, UnixNanos now,
                                                const Uuid& node, std::uint64_t number,
                                                Deadline deadline);

// What is too much in the trash: files that were put there before `before` (server's clock), and of the others the
// oldest, as long as all are more than `most`.
//
// A server whose clock is set back leaves names that say a time to come, and by these the files would stay until then.
// They count as put there now, and one node gives them names of now.
struct TrashRule {
  UnixNanos before = INT64_MIN;
  UnixNanos now = INT64_MAX;  // server's clock, where it is known
  bool renames = false;       // gives files of a time to come names of now, which is known
  PoolTrash most = {.files = UINT64_MAX, .bytes = UINT64_MAX};
  // All of it.
  static TrashRule nothing_stays() noexcept { return {.before = INT64_MAX}; }
  // None of it: the trash is counted.
  static TrashRule all_stays() noexcept { return {}; }
};

struct TrashSwept {
  PoolTrash removed = {};
  std::uint64_t renamed = 0;  // files whose names said a time to come
  // Counts the files with names of ours; of a trash of more than twice kMostTrashFiles, as many.
  PoolTrash left = {};
  bool all = true;  // false: there is more to be removed, for the next call
};

// Removes what is too much, `most` files at most, with their checksums, unless these are of another file by now, or the
// file has another name. Renames `most` files at most. Half of the time until the deadline is for that. Several nodes may
// do it at once: they remove the same files, because the order is one, and a file that one of them has renamed is gone to
// the others.
[[nodiscard]] Result<TrashSwept> sweep_trash(PoolSession& session, const TrashRule& rule,
                                             std::size_t most, Deadline deadline);

}  // namespace kvcachefs
