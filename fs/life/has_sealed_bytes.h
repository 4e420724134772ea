// What a file's bytes say after a crash of the machine.
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

// Whether the object still is what its last seal's checksums say: reads all of `fd`, its backing file, so the caller
// holds no lock. Errors: EIO and what else a bad medium says, EBADMSG.
Result<bool> has_sealed_bytes(Core& core, ObjectId id, const UniqueFd& fd);

}  // namespace kvcachefs
