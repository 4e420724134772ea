// Capabilities let a process do more than any process may. A daemon that serves others drops
// those that it does not use, so that a fault in it gives away less.
//
// capabilities(7), prctl(2), capset(2).
#pragma once

#include <span>

#include "backend/base/result.h"

namespace kvcachefs {

// Drops all capabilities but `kept` (CAP_…, of linux/capability.h; those that the process does
// not have stay absent), for good and for all that it executes, and has nothing that it
// executes gain any (no_new_privs). Of a process with one thread: each thread has its own, and
// those that are started later have what their starter has. Errors: EPERM and whatever else the
// kernel comes up with; some may have been dropped by then.
Result<void> drop_capabilities(std::span<const int> kept);

}  // namespace kvcachefs
