// The checksums of a backing file: CRC32C of each 256 KiB chunk, holes included.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/base/result.h"

namespace kvcachefs {

// Files over this size are sealed without checksums: their list would not fit a record (64 GiB:
// 1 MiB of it).
inline constexpr std::uint64_t kMostChecksummedBytes = 64ull << 30;

// Reads the first `size` bytes of `fd`, but for the chunks whose checksums are `known`, from the
// first on. Holes are not read. Errors: EIO and what pread(2) gives; ENODATA when the file is
// shorter.
Result<std::vector<std::uint32_t>> checksum_file(int fd, std::uint64_t size,
                                                 std::vector<std::uint32_t> known = {});

// Where the bytes that are compared come from.
enum class ReadWay : std::uint8_t {
  kThroughCache,  // what is read stays in the page cache, for who reads next
  kPastCache,     // from the disk, if the descriptor has O_DIRECT
};

// What a comparison has found.
struct Compared {
  bool equal = false;
  bool ended_early = false;      // by `go_on`; nothing has differed until there
  std::uint64_t differs_at = 0;  // bytes; the chunk, or the end of a file that is too short
};

// Compares the first `size` bytes of `fd` with their checksums. `go_on`, where given, is asked before
// each read with the number of bytes it takes (1 MiB at most) and may wait; false ends it. Errors: EIO
// and what pread(2) gives.
Result<Compared> compare_file(int fd, std::uint64_t size, std::span<const std::uint32_t> sums,
                              ReadWay way,
                              const std::function<bool(std::uint64_t bytes)>& go_on = {});

}  // namespace kvcachefs
