// The comparison of a backing file with its checksums.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "backend/base/crc32c.h"
#include "fs/life/checksum.h"
#include "metadata/record.h"

namespace kvcachefs {
namespace {

// Bytes of one read. The kernel reads ahead of it by itself, in pages of the best size; asking for more
// (POSIX_FADV_WILLNEED) was measured to be slower.
constexpr std::uint64_t kStep = 4 * kChecksumChunk;
// What direct I/O wants its memory, offsets and lengths to be multiples of.
constexpr std::uint64_t kAlignment = 4096;

struct Free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

std::span<std::byte> step_buffer() {
  static thread_local const std::unique_ptr<std::byte, Free> buffer(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, kStep)));
  return {buffer.get(), buffer == nullptr ? 0 : kStep};
}

// Bytes read; fewer only at the end of the file.
Result<std::uint64_t> read_step(int fd, std::span<std::byte> out, std::uint64_t offset,
                                ReadWay way) {
  std::uint64_t done = 0;
  while (done < out.size()) {
    std::uint64_t length = out.size() - done;
    if (way == ReadWay::kPastCache)
      length = (length + kAlignment - 1) / kAlignment * kAlignment;
    const ssize_t got =
        ::pread(fd, out.data() + done, length, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("reading a backing file");
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
    // Direct I/O ends at the file's end, from where it could not go on.
    if (way == ReadWay::kPastCache && done % kAlignment != 0) break;
  }
  return std::min<std::uint64_t>(done, out.size());
}

}  // namespace

Result<Compared> compare_file(int fd, std::uint64_t size, std::span<const std::uint32_t> sums,
                              ReadWay way,
                              const std::function<bool(std::uint64_t bytes)>& go_on) {
  const std::span<std::byte> buffer = step_buffer();
  if (buffer.empty()) return fail(ENOMEM, "memory to compare a file");
  if (way == ReadWay::kThroughCache) ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  for (std::uint64_t offset = 0; offset < size; offset += kStep) {
    const std::uint64_t length = std::min(kStep, size - offset);
    if (go_on && !go_on(length))
      return Compared{.equal = false, .ended_early = true, .differs_at = 0};
    const std::uint64_t got = TRY(read_step(fd, buffer.first(length), offset, way));
    for (std::uint64_t at = 0; at < length; at += kChecksumChunk) {
      const std::uint64_t chunk = std::min(kChecksumChunk, length - at);
      const std::size_t which = static_cast<std::size_t>((offset + at) / kChecksumChunk);
      if (at + chunk > got || which >= sums.size() ||
          crc32c(0, buffer.subspan(at, chunk)) != sums[which])
        return Compared{.equal = false, .ended_early = false, .differs_at = offset + at};
    }
  }
  return Compared{.equal = true, .ended_early = false, .differs_at = 0};
}

}  // namespace kvcachefs
