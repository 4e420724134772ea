// The checksums of a backing file: CRC32C of each 256 KiB chunk, holes included.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/base/result.h"

namespace kvcachefs {

// Files over this size are sealed without checksums: their list would not fit a record (64 GiB:
// 1 MiB of it).
inline constexpr std::uint64_t kMostChecksummedBytes = 64ull << 30;

// Reads the first `size` bytes of `fd`. Holes are not read. Errors: EIO and what pread(2)
// gives; ENODATA when the file is shorter.
Result<std::vector<std::uint32_t>> checksum_file(int fd, std::uint64_t size);

}  // namespace kvcachefs
