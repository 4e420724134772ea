// Recovery: what a start makes of what the last run left. It looks at the unsealed files only,
// so its cost is what was in flight, not what is stored.
//
//               the daemon crashed                    the machine crashed, or was rebooted
//   unpublished dropped; a rewrite's old object is    the same; the old object only if it
//               back                                  was sealed, or on disk at a close
//   published   kept if it equals its stamp or was    kept if it was fsynced, or is to be kept and
//               fsynced, else dropped                 was on disk at a close (as the backing
//                                                     filesystem left it), else dropped
//   mutable     kept                                  the same, and if it still has its last
//                                                     seal's checksums
//   sealed      kept                                  kept; found changed by a lookup or by the walk
//                                                     over all (object_walk.h), as mutable
//
// The kernel's page cache of the backing files outlives a daemon, so after its crash a file
// that equals its stamp is whole. After a machine's crash a size proves nothing (a mapped store
// leaves zeros).
#pragma once

#include <string>

#include "fs/life/reaper.h"
#include "fs/node/core.h"

namespace kvcachefs {

// Makes the root directory in a new catalog, settles the last run, and marks this run as under
// way. Before the mount answers; no other thread works yet. Errors: EIO, EBADMSG, ENOSPC;
// `problem` says what to do.
Result<RecoveryReport> recover(Core& core, Reaper& reaper, std::string& problem);

// One of the two that look at what a machine's crash has left (Core::cut_looks_left) has seen all: after the last one the
// crash is forgotten. Any thread.
void has_looked_after_cut(Core& core);

// Marks the run as ended in order. `closed`: the kernel has let go of the mount, so that nobody has
// a file open or mapped any more. The catalog is on disk when it returns.
Result<void> mark_clean(Core& core, bool closed);

}  // namespace kvcachefs
