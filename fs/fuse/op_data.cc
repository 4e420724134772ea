// READ, WRITE, LSEEK of files that the daemon serves; IOCTL.
#include "fs/fuse/ops.h"

namespace kvcachefs {

void op_read(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset,
             fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kRead);
  const std::span<std::byte> buffer = reply.buffer(size);
  // A short answer would read as the end of the file.
  if (buffer.size() < size) return reply.error(fail(ENOMEM, "buffer for a read"));
  const Result<std::size_t> count =
      reply.volume().read(*reply.file(info), buffer, static_cast<std::uint64_t>(offset));
  if (!count) return reply.error(count.error());
  reply.data(buffer.data(), *count);
}

void op_write(fuse_req_t request, fuse_ino_t, const char* bytes, std::size_t size, off_t offset,
              fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kWrite);
  const std::span<const std::byte> data{reinterpret_cast<const std::byte*>(bytes), size};
  const Result<std::size_t> count = reply.volume().write(
      *reply.file(info), data, static_cast<std::uint64_t>(offset), caller_of(request));
  if (!count) return reply.error(count.error());
  reply.written(*count);
}

void op_lseek(fuse_req_t request, fuse_ino_t, off_t offset, int whence,
              fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kLseek);
  const Result<std::uint64_t> position =
      reply.volume().seek(*reply.file(info), static_cast<std::uint64_t>(offset), whence);
  if (!position) return reply.error(position.error());
  reply.position(*position);
}

void op_ioctl(fuse_req_t request, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned,
              const void*, std::size_t, std::size_t) noexcept {
  Reply reply(request, Operation::kIoctl);
  reply.error(fail(ENOTTY, "ioctl"));
}

}  // namespace kvcachefs
