// Which bytes of a file have blocks of its filesystem.
#pragma once

#include <cstdint>

#include "backend/base/result.h"

namespace kvcachefs {

// How many bytes of the range have no blocks yet: what is preallocated has some, and so has
// what was written and is not on the disk yet (FS_IOC_FIEMAP,
// Documentation/filesystems/fiemap.rst). Never too few: of a file in very many pieces it may be
// too many. Errors: those of fstat(2).
Result<std::uint64_t> unallocated_bytes(int fd, std::uint64_t offset, std::uint64_t length);

}  // namespace kvcachefs
