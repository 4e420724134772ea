// What a request does not carry about its caller: supplementary groups and capabilities. Read
// from /proc when one of the rare questions below comes up; a caller that is gone has neither.
#pragma once

#include <linux/capability.h>
#include <sys/types.h>

#include "fs/volume.h"

namespace kvcachefs {

[[nodiscard]] bool in_group(const Caller& caller, gid_t group);

// Whether the caller is in the same process as the thread `thread`, which can be seen and lives.
[[nodiscard]] bool is_same_process(const Caller& caller, pid_t thread);

// Whether the caller is in another process than the thread `thread`, as far as can be seen: not
// when either is invisible, or when that thread has ended.
[[nodiscard]] bool is_another_process(const Caller& caller, pid_t thread);

// `capability`: CAP_FSETID, CAP_SYS_ADMIN, … What a caller may do in a user namespace of its own
// does not count.
[[nodiscard]] bool has_capability(const Caller& caller, int capability);

// Whether the caller's files may be such that must stay.
[[nodiscard]] bool may_keep(const Caller& caller, const Keepers& keepers);

}  // namespace kvcachefs
