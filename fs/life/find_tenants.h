// The directories that the last run was told a share or a quota for. Whoever asks for a file of
// theirs finds them, too, but what nobody asks for yet is promised its room all the same.
#pragma once

#include "fs/node/core.h"

namespace kvcachefs {

// Looks through all xattrs: a second a million, or so. Errors: EIO, EBADMSG.
Result<void> find_tenants(Core& core);

}  // namespace kvcachefs
