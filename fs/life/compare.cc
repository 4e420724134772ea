// The comparison of a backing file with its checksums.
#include <fcntl.h>
#include <sys/mman.h>
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

// Bytes of one read from the disk itself.
constexpr std::uint64_t kStep = 4 * kChecksumChunk;
// And through the page cache: while one is compared, the kernel reads ahead.
constexpr std::uint64_t kCachedStep = kChecksumChunk;
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

// Has the kernel begin to read ahead in the largest folios it has, and go on so: it starts with single
// pages otherwise, and a first load of 1 MiB takes twice as long. The mapping is not looked at, so that it
// raises no SIGBUS. What fails here, the reads will say, or nobody needs to know.
void read_ahead_in_large_folios(int fd, std::uint64_t size) noexcept {
  constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, Linux 5.14
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  if (size < kCachedStep) return;
  void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return;
  if (::madvise(mapped, size, MADV_HUGEPAGE) == 0) ::madvise(mapped, kAlignment, kPopulateRead);
  ::munmap(mapped, size);
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
  if (way == ReadWay::kThroughCache) read_ahead_in_large_folios(fd, size);
  const std::uint64_t step = way == ReadWay::kThroughCache ? kCachedStep : kStep;
  for (std::uint64_t offset = 0; offset < size; offset += step) {
    const std::uint64_t length = std::min(step, size - offset);
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
