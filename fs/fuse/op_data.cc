// READ, WRITE, LSEEK of files that the daemon serves; IOCTL.
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

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

void read_and_answer(Reply& reply, OpenFile& file, std::size_t size, std::uint64_t offset) {
  answer_bytes(reply, read_into_buffer(reply, file, size, offset));
}

// For a read or write that may wait for the disk of its file: a worker does it when its turn
// has come (DiskRequests); `refuse(reply)` where the disk does not answer and too many wait for
// it. Returns when it is answered if `waits`. `kind`: kRead, or of what writes.
template <class Work, class Refuse>
void run_on_disk(Reply reply, FairPool& workers, Kind kind, std::optional<std::uint32_t> disk,
                 Work work, Refuse refuse, bool waits = false) {
  OperationContext& context = reply.context();
  DiskRequests& requests = *context.disk_requests;
  const std::uint32_t user = caller_of(reply.request()).uid;
  const auto is_stuck = [&reply, disk] { return disk && reply.volume().is_stuck(*disk); };
  const Placed placed = find_place(reply, is_stuck);
  if (placed == Placed::kHere) return work(reply);
  if (placed == Placed::kRefused || placed == Placed::kNone) return refuse(reply);
  auto shared = std::make_shared<Reply>(std::move(reply));
  const Ended ended(waits || placed == Placed::kBeyond);
  const auto end = [&context, ended] {
    ended.say();
    context.parked.fetch_sub(1);
  };
  const auto request = requests.enter(
      {.index = disk, .user = user, .writes = kind != Kind::kRead},
      [shared, end, work = std::move(work)] {
        work(*shared);
        end();
      },
      [shared, end, refuse = std::move(refuse)] {
        refuse(*shared);
        end();
      });
  if (request == nullptr) return;
  const auto task = [&requests, request] { requests.run(request); };
  if (!workers.try_post(party_of(user, kind, disk.value_or(0)), task)) task();
  if (waits) return ended.wait();
  if (placed == Placed::kBeyond) ended.wait_beyond();
}

// What is in memory is read here, on whatever thread; what a disk is to be asked for, by a
// worker of that disk.
void read_here_or_there(Reply reply, OpenFile& file, std::size_t size, std::uint64_t offset) {
  {
    std::optional<RefusesToWait> here(std::in_place);
    const auto bytes = read_into_buffer(reply, file, size, offset);
    here.reset();
    if (!must_wait(bytes)) return answer_bytes(reply, bytes);
  }
  const auto disk = reply.volume().disk_of(file);
  FairPool& workers = reply.context().slow_calls->of(disk);
  run_on_disk(
      std::move(reply), workers, Kind::kRead, disk,
      [&file, size, offset](Reply& answer) { read_and_answer(answer, file, size, offset); },
      refuse_for_disk);
}

// Bytes of a write that outlive its handler.
class CopiedBytes {
 public:
  // Null: there are too many already.
  static std::shared_ptr<CopiedBytes> of(std::span<const std::byte> bytes,
                                         std::atomic<std::size_t>& count) {
    constexpr std::size_t kMost = 64;
    if (count.fetch_add(1) < kMost) return std::make_shared<CopiedBytes>(bytes, count);
    count.fetch_sub(1);
    return nullptr;
  }
  CopiedBytes(std::span<const std::byte> bytes, std::atomic<std::size_t>& count)
      : bytes_(bytes.begin(), bytes.end()), count_(count) {}
  ~CopiedBytes() { count_.fetch_sub(1); }
  CopiedBytes(const CopiedBytes&) = delete;
  CopiedBytes& operator=(const CopiedBytes&) = delete;
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  const std::vector<std::byte> bytes_;
  std::atomic<std::size_t>& count_;
};

void write_and_answer(Reply& reply, OpenFile& file, std::span<const std::byte> data,
                      std::uint64_t offset, const Caller& caller) {
  const Result<std::size_t> count = reply.volume().write(file, data, offset, caller);
  count ? reply.written(*count) : reply.error(count.error());
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
    const auto read = [&file, size, at](Reply& answer) {
      read_and_answer(answer, file, size, at);
    };
    if (!run_parked(reply, *context.read_calls, 2, read))
      reply.error(fail(EIO, "too many wait for the pool"));
    return;
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
  OperationContext& context = reply.context();
  OpenFile& file = *reply.file(info);
  const auto disk = reply.volume().disk_of(file);
  const Caller caller = caller_of(request);
  const auto at = static_cast<std::uint64_t>(offset);
  std::span<const std::byte> data{reinterpret_cast<const std::byte*>(bytes), size};
  // Of a ring the bytes lie in the request's entry until the answer; else in memory of this
  // thread.
  std::shared_ptr<CopiedBytes> copy;
  const DiskRequests::Of of{.index = disk, .user = caller.uid, .writes = true};
  // Of a mapping nobody waits for the answer.
  const bool is_seen = info->writepage == 0;
  const auto refuse = [&file, is_seen](Reply& answer) {
    answer.volume().refused_write(file, is_seen);
    refuse_for_disk(answer);
  };
  std::optional<OwnChange> own;
  if (!context.is_ring) {
    own.emplace(context);
    if (own->may() && context.disk_requests->run_at_once(
                          of, [&] { write_and_answer(reply, file, data, at, caller); }))
      return;
    copy = CopiedBytes::of(data, context.copied_writes);
    if (copy != nullptr) data = copy->bytes();
    // This thread waits with them, if enough others are left.
    if (copy == nullptr && !own->may()) return refuse(reply);
  }
  const bool waits = !context.is_ring && copy == nullptr;
  const auto write = [&file, data, copy, at, caller](Reply& answer) {
    write_and_answer(answer, file, data, at, caller);
  };
  FairPool* const near = change_workers(context);
  FairPool& workers = near != nullptr ? *near : context.slow_calls->of(disk);
  run_on_disk(std::move(reply), workers, disk ? Kind::kOfDisk : Kind::kAny, disk, write, refuse,
              waits);
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
