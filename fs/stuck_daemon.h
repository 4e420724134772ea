// A daemon that was killed and cannot end.
//
// The kernel ends a process with its last thread. A thread that tells the kernel of a lost name
// (FUSE_NOTIFY_INVAL_ENTRY, fs/fuse/dir.c: fuse_reverse_inval_entry) waits there, not to be killed, for the
// directory's lock; who has that lock may be waiting for the daemon. Until somebody aborts the
// connection the callers hang, and the state directory stays locked by a zombie.
#pragma once

#include <string>

#include "fs/mount_place.h"

namespace kvcachefs {

// Whether the process that has this state directory locked is such a one. Then the connections of its
// mounts are aborted, which ends both it and what waits for it, and `note` is told.
bool end_stuck_daemon(const std::string& state, const Note& note);

}  // namespace kvcachefs
