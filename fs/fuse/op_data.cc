// READ, WRITE, LSEEK of files that the daemon serves; IOCTL.
#include <atomic>
#include <memory>
#include <utility>

#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

// `parked`, if it is given, counts this read; it does not any more when the answer goes, upon which the kernel may send
// the next.
void answer_read(Reply& reply, OpenFile& file, std::size_t size, std::uint64_t offset,
                 std::atomic<std::size_t>* parked) noexcept {
  const std::span<std::byte> buffer = reply.buffer(size);
  // A short answer would read as the end of the file.
  const Result<std::size_t> count = buffer.size() < size
                                        ? Result<std::size_t>(fail(ENOMEM, "buffer for a read"))
                                        : reply.volume().read(file, buffer, offset);
  if (parked != nullptr) parked->fetch_sub(1);
  if (!count) return reply.error(count.error());
  reply.data(buffer.data(), *count);
}

}  // namespace

void op_read(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset,
             fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kRead);
  OpenFile& file = *reply.file(info);
  const auto at = static_cast<std::uint64_t>(offset);
  if (!reply.volume().read_waits(file, size, at))
    return answer_read(reply, file, size, at, nullptr);
  OperationContext& context = reply.context();
  if (context.parked_reads.fetch_add(1) >= context.most_parked_reads.load()) {
    context.parked_reads.fetch_sub(1);
    return reply.error(fail(EIO, "too many wait for the pool"));
  }
  const std::uint32_t user = caller_of(request).uid;
  // The kernel does not release a file while a read of it is under way.
  auto shared = std::make_shared<Reply>(std::move(reply));
  const auto task = [&context, &file, size, at, shared] {
    answer_read(*shared, file, size, at, &context.parked_reads);
  };
  if (!context.read_calls->try_post(user, task)) task();
}

void op_write(fuse_req_t request, fuse_ino_t, const char* bytes, std::size_t size, off_t offset,
              fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kWrite);
  // Of a ring the bytes lie in the request's entry until the answer.
  const std::span<const std::byte> data{reinterpret_cast<const std::byte*>(bytes), size};
  OpenFile& file = *reply.file(info);
  run_change(
      std::move(reply), [&file, data, offset, caller = caller_of(request)](Reply& answer) {
        const Result<std::size_t> count =
            answer.volume().write(file, data, static_cast<std::uint64_t>(offset), caller);
        count ? answer.written(*count) : answer.error(count.error());
      });
}

void op_lseek(fuse_req_t request, fuse_ino_t, off_t offset, int whence,
              fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kLseek);
  OpenFile& file = *reply.file(info);
  // The filesystem below looks at one extent after the other, and a file may have a million.
  run_slowly(std::move(reply), [&file, offset, whence](Reply& answer) {
    const Result<std::uint64_t> position =
        answer.volume().seek(file, static_cast<std::uint64_t>(offset), whence);
    position ? answer.position(*position) : answer.error(position.error());
  });
}

void op_ioctl(fuse_req_t request, fuse_ino_t, unsigned, void*, fuse_file_info*, unsigned,
              const void*, std::size_t, std::size_t) noexcept {
  Reply reply(request, Operation::kIoctl);
  reply.error(fail(ENOTTY, "ioctl"));
}

}  // namespace kvcachefs
