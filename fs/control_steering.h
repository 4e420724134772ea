// What is asked about one path, and what is asked for, as requests of the control socket: only of a
// daemon.
//
//   command   takes                    answers
//   explain   path                     EXPLANATION
//   evict     path, or block (of a     {"directory": an inode as 16 hex digits, or null,
//             directory) and after      "files": …, "bytes": …, "left": {"open": …, …},
//                                       "examples": [{"path", "why"}…], "directories": […]}
//   flush     path, and after         {"unsealed": …, "closing", "open", "more_unsealed", "syncing", "poisoned",
//                                       "pool", "publishes", "files": …, "removed": …, "owners", "more",
//                                       "skipped", "obstructed", "up", "stopped_for", "next"}
//
// `flush` says what is not on the disk yet ("unsealed" files that no program writes to; "syncing": the database is not on
// the disk) and, where the mount publishes on a pool, what is not there yet, and has both done soon: ask again with
// "next" as `after` until both are nothing.
//
// "next", where it is there, is the `after` to go on with in the same directory. A path is relative to
// the root of the filesystem; of a directory's, `evict` answers which one it is and does nothing.
//
// EXPLANATION has path, found; where nothing is found dropped: null, or reason, when, size,
// inode, last_use. Else inode, type, links, created, policy, policy_by ("file", "directory",
// "layout", "application", "mount"), policy_from (a path), ttl (seconds), ttl_from; of a file
// device, object, size, allocated, written, state, missing, open, open_for_writing, obstacle
// ("open", "unsealed", "kept", "pinned", "owned", "leased", "queued", or null: it may go),
// beyond_share (true: to be kept, and cache all the same), expires, block (OBJECT of
// control_queries.h) and chain: parent (OBJECT or null), has_parent, firm, children,
// more_children, goes_after.
#pragma once

#include <string>

#include "backend/base/result.h"
#include "fs/control_request.h"
#include "fs/volume.h"

namespace kvcachefs {

[[nodiscard]] bool is_steering(const ControlRequest& request) noexcept;
// One line. Errors: EINVAL (a field is missing, or not what "next" was), and those of Volume::explain()
// Volume::evict() and Volume::flush().
Result<std::string> answer_steering(Volume& volume, const ControlRequest& request);

}  // namespace kvcachefs
