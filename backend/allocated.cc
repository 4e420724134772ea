#include "backend/allocated.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace kvcachefs {
namespace {

constexpr std::uint32_t kExtentsAtOnce = 128;
// Of a file in more pieces the rest counts as if it had no blocks.
constexpr int kMostCalls = 64;

// The header and its extents, which follow it in memory.
struct Question {
  alignas(fiemap)
      std::array<std::byte, sizeof(fiemap) + kExtentsAtOnce * sizeof(fiemap_extent)> memory{};
  fiemap* map() noexcept { return reinterpret_cast<fiemap*>(memory.data()); }
  [[nodiscard]] fiemap_extent extent(std::uint32_t at) const noexcept {
    fiemap_extent out;
    std::memcpy(&out, memory.data() + sizeof(fiemap) + at * sizeof out, sizeof out);
    return out;
  }
};

// Without a map of it: no more than the file has in all can be in the range.
Result<std::uint64_t> at_least(int fd, std::uint64_t length) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return fail_errno("status of a backing file");
  const std::uint64_t all = static_cast<std::uint64_t>(status.st_blocks) * 512;
  return length - std::min(length, all);
}

}  // namespace

Result<std::uint64_t> unallocated_bytes(int fd, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t end = offset + std::min(length, UINT64_MAX - offset);
  std::uint64_t missing = 0;
  std::uint64_t at = offset;
  for (int call = 0; at < end && call < kMostCalls; ++call) {
    Question question;
    question.map()->fm_start = at;
    question.map()->fm_length = end - at;
    question.map()->fm_extent_count = kExtentsAtOnce;
    if (::ioctl(fd, FS_IOC_FIEMAP, question.map()) != 0) return at_least(fd, length);
    const std::uint32_t found = question.map()->fm_mapped_extents;
    if (found == 0) break;
    bool is_last = false;
    for (std::uint32_t i = 0; i < std::min(found, kExtentsAtOnce); ++i) {
      const fiemap_extent extent = question.extent(i);
      if (extent.fe_logical > at)
        missing += std::min<std::uint64_t>(extent.fe_logical, end) - at;
      at = std::clamp<std::uint64_t>(extent.fe_logical + extent.fe_length, at, end);
      is_last = (extent.fe_flags & FIEMAP_EXTENT_LAST) != 0;
    }
    if (is_last) break;
  }
  return missing + (end - at);
}

}  // namespace kvcachefs
