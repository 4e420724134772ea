// What an fsync means with --pool-sync pool: it returns when the file, or all that is below the directory, is on the pool.
//
// Of a file that somebody still writes nothing can be there (one that was closed just now is
// waited for: fs/node/closing.h); neither can what stays on this node (temporaries, session/,
// what a directory publishes nothing of). So a program that stores, renames and then syncs the
// directory, as for any filesystem, returns from that when others can load what it stored.
#pragma once

#include <chrono>
#include <functional>

#include "fs/node/core.h"

namespace kvcachefs {

// Of a pool that makes no progress. A file gets the time besides that its size takes at kSlowestPublication.
inline constexpr std::chrono::seconds kPoolSyncPatience{10};
// Of a directory, in all.
inline constexpr std::chrono::seconds kLongestPoolSync{60};

struct PoolSync {
  // Has what was closed sealed and published soon.
  std::function<void()> hurry;
  // The pool answers. When it does not an fsync fails at once: the kernel keeps the lock of a directory as long as one of it
  // takes (fuse_dir_fsync(), fs/fuse/dir.c), and whoever lists it, or makes a name in it, waits.
  std::function<bool()> is_up;
  // The mount ends: nothing is waited for any more.
  std::function<bool()> gives_up;
};

// *slow*: waits. `called`: when the program asked. Errors: EIO (it is not there in time, or the pool is down), EBADMSG.
Result<void> sync_on_pool(Core& core, InodeNumber number,
                          std::chrono::steady_clock::time_point called, const PoolSync& sync);

}  // namespace kvcachefs
