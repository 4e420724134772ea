// READ, WRITE, LSEEK of files that the daemon serves; IOCTL.
#include <memory>
#include <optional>
#include <utility>

#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

Result<std::span<std::byte>> read_into_buffer(Reply& reply, OpenFile& file, std::size_t size,
                                              std::uint64_t offset) {
  const std::span<std::byte> buffer = reply.buffer(size);
  // A short answer would read as the end of the file.
  if (buffer.size() < size) return fail(ENOMEM, "buffer for a read");
  return buffer.first(TRY(reply.volume().read(file, buffer, offset)));
}

void answer_bytes(Reply& reply, const Result<std::span<std::byte>>& bytes) noexcept {
  if (!bytes) return reply.error(bytes.error());
  reply.data(bytes->data(), bytes->size());
}

// What is in memory is read here, on whatever thread; what a disk is to be asked for, by a
// worker of that disk. Where the user has so many of them on their way that no place is left,
// it is done here, too, as long as the disk answers.
void read_here_or_there(Reply reply, OpenFile& file, std::size_t size, std::uint64_t offset) {
  {
    std::optional<RefusesToWait> here(std::in_place);
    const auto bytes = read_into_buffer(reply, file, size, offset);
    here.reset();
    if (!must_wait(bytes)) return answer_bytes(reply, bytes);
  }
  const auto read = [&file, size, offset](Reply& answer) {
    answer_bytes(answer, read_into_buffer(answer, file, size, offset));
  };
  const auto disk = reply.volume().disk_of(file);
  FairPool& workers = reply.context().slow_calls->of(disk);
  if (run_parked(reply, workers, 4, read, Kind::kRead)) return;
  if (disk && reply.volume().is_stuck(*disk))
    return reply.error(fail(EIO, "too many wait for a disk that does not answer"));
  read(reply);
}

}  // namespace

void op_read(fuse_req_t request, fuse_ino_t, std::size_t size, off_t offset,
             fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kRead);
  OpenFile& file = *reply.file(info);
  const auto at = static_cast<std::uint64_t>(offset);
  if (!reply.volume().read_waits(file, size, at))
    return read_here_or_there(std::move(reply), file, size, at);
  OperationContext& context = reply.context();
  if (context.parked_reads.fetch_add(1) >= context.most_parked_reads.load()) {
    context.parked_reads.fetch_sub(1);
    return reply.error(fail(EIO, "too many wait for the pool"));
  }
  const std::uint32_t user = caller_of(request).uid;
  // The kernel does not release a file while a read of it is under way.
  auto shared = std::make_shared<Reply>(std::move(reply));
  const auto task = [&context, &file, size, at, shared] {
    const auto bytes = read_into_buffer(*shared, file, size, at);
    // When the answer goes the kernel may send the next.
    context.parked_reads.fetch_sub(1);
    answer_bytes(*shared, bytes);
  };
  if (!context.read_calls->try_post(user, task)) task();
}

void op_write(fuse_req_t request, fuse_ino_t, const char* bytes, std::size_t size, off_t offset,
              fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kWrite);
  // Of a ring the bytes lie in the request's entry until the answer.
  const std::span<const std::byte> data{reinterpret_cast<const std::byte*>(bytes), size};
  OpenFile& file = *reply.file(info);
  const auto disk = reply.volume().disk_of(file);
  run_change(
      std::move(reply),
      [&file, data, offset, caller = caller_of(request)](Reply& answer) {
        const Result<std::size_t> count =
            answer.volume().write(file, data, static_cast<std::uint64_t>(offset), caller);
        count ? answer.written(*count) : answer.error(count.error());
      },
      disk);
}

void op_lseek(fuse_req_t request, fuse_ino_t, off_t offset, int whence,
              fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kLseek);
  OpenFile& file = *reply.file(info);
  const auto disk = reply.volume().disk_of(file);
  // The filesystem below looks at one extent after the other, and a file may have a million.
  run_slowly(std::move(reply), disk, [&file, offset, whence](Reply& answer) {
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
