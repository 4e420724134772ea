#include "fs/life/checksum.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <utility>

#include "backend/base/crc32c.h"
#include "metadata/record.h"

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x00000080  // Linux 6.14, include/uapi/linux/fs.h
#endif

namespace kvcachefs {
namespace {

// Pages that this read brings in are dropped again (a file written with O_DIRECT must not fill
// the page cache for its seal's sake); pages that were there stay.
ssize_t read_without_caching(int fd, std::byte* out, std::size_t length, std::uint64_t offset) {
  iovec vector{.iov_base = out, .iov_len = length};
  const ssize_t got = preadv2(fd, &vector, 1, static_cast<off_t>(offset), RWF_DONTCACHE);
  if (got >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS)) return got;
  return pread(fd, out, length, static_cast<off_t>(offset));
}

Result<void> read_chunk(int fd, std::span<std::byte> out, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        read_without_caching(fd, out.data() + done, out.size() - done, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("reading a backing file");
    if (got == 0) return fail(ENODATA, "the backing file is shorter than its size");
    done += static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace

Result<std::vector<std::uint32_t>> checksum_file(int fd, std::uint64_t size,
                                                 std::vector<std::uint32_t> known) {
  std::vector<std::uint32_t> sums = std::move(known);
  sums.reserve(static_cast<std::size_t>((size + kChecksumChunk - 1) / kChecksumChunk));
  static thread_local std::unique_ptr<std::byte[]> buffer;
  if (buffer == nullptr) buffer.reset(new std::byte[kChecksumChunk]);
  std::uint32_t sum_of_zeros = 0;
  std::uint64_t length_of_zeros = 0;
  std::uint64_t data_from = 0;  // [offset, data_from) is a hole
  for (std::uint64_t offset = sums.size() * kChecksumChunk; offset < size;
       offset += kChecksumChunk) {
    const std::uint64_t length = std::min(kChecksumChunk, size - offset);
    if (data_from <= offset) {
      const off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
      if (data >= 0) data_from = static_cast<std::uint64_t>(data);
      if (data < 0) data_from = errno == ENXIO ? size : offset;
    }
    if (data_from >= offset + length) {
      if (length_of_zeros != length) {
        std::fill_n(buffer.get(), length, std::byte{0});
        sum_of_zeros = crc32c(0, std::span(buffer.get(), length));
        length_of_zeros = length;
      }
      sums.push_back(sum_of_zeros);
      continue;
    }
    const std::span chunk(buffer.get(), length);
    TRY(read_chunk(fd, chunk, offset));
    sums.push_back(crc32c(0, chunk));
    data_from = 0;
  }
  return sums;
}

}  // namespace kvcachefs
