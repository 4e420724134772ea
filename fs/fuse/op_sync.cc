// What may wait for a disk: FLUSH, FSYNC, FSYNCDIR, FALLOCATE, COPY_FILE_RANGE.
#include <algorithm>
#include <chrono>
#include <utility>

#include "fs/fuse/kernel_order.h"
#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

using Clock = std::chrono::steady_clock;

// `sync(volume)` puts it on the disk; where an fsync means the pool it waits for that as well,
// on threads that wait for no disk.
template <class Sync>
void sync_here_or_there(Reply reply, fuse_ino_t inode, std::optional<std::uint32_t> disk,
                        Sync sync) {
  OperationContext& context = reply.context();
  if (!reply.volume().syncs_on_pool())
    return run_slowly(std::move(reply), disk,
                      [sync](Reply& answer) { answer.result(sync(answer.volume())); });
  const auto wait = [&context, inode, called = Clock::now()](Reply& answer) {
    answer.result(answer.volume().sync_on_pool(
        inode, called, [&context] { return context.parked_limit.load() == 0; }));
  };
  const auto sync_and_wait = [&context, sync, wait](Reply& answer) {
    const Result<void> here = sync(answer.volume());
    if (!here.ok()) return answer.result(here);
    go_on(std::move(answer), *context.sync_calls, wait);
  };
  if (!run_parked(reply, context.slow_calls->of(disk), 3, sync_and_wait))
    reply.error(fail(EIO, "too many wait for the pool"));
}

}  // namespace

void op_flush(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kFlush);
  OpenFile& file = *reply.file(info);
  const Caller caller = caller_of(request);
  const auto ask = [&file](Volume& volume) { return volume.flush_cost(file); };
  FlushCost cost = look_or(reply, ask, FlushCost::kQuick);
  const auto disk = reply.volume().disk_of(file);
  const auto flush = [&file, caller](Reply& answer) {
    answer.result(answer.volume().flush(file, caller));
  };
  if (cost == FlushCost::kWaitsForRoom) {
    // There is one thread for all who wait for room: it waits for no disk.
    if (run_when_room(reply, [&file, flush, disk, called = Clock::now()](Reply& answer) {
          answer.volume().wait_for_room(file, called);
          FairPool& workers = answer.context().slow_calls->of(disk);
          go_on(std::move(answer), workers, flush);
        }))
      return;
    // Where too many wait for room already, it is done without.
    cost = look_or(
        reply,
        [&file](Volume& volume) { return volume.flush_cost(file, /*waits_for_room=*/false); },
        FlushCost::kQuick);
  }
  cost == FlushCost::kQuick ? run_change(std::move(reply), flush, disk)
                            : run_slowly(std::move(reply), disk, flush);
}

void op_fsync(fuse_req_t request, fuse_ino_t inode, int data_only,
              fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kFsync);
  OpenFile& file = *reply.file(info);
  const auto disk = reply.volume().disk_of(file);
  sync_here_or_there(std::move(reply), inode, disk,
                     [&file, data_only, caller = caller_of(request)](Volume& volume) {
                       return volume.fsync(file, data_only != 0, caller);
                     });
}

void op_fsyncdir(fuse_req_t request, fuse_ino_t inode, int, fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kFsyncdir);
  if (OpenDirectory* directory = reply.directory(info); directory != nullptr)
    reply.volume().synced_directory(*directory);
  sync_here_or_there(std::move(reply), inode, kNoDisk,
                     [inode](Volume& volume) { return volume.fsync_directory(inode); });
}

void op_fallocate(fuse_req_t request, fuse_ino_t, int mode, off_t offset, off_t length,
                  fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kFallocate);
  OpenFile& file = *reply.file(info);
  const auto disk = reply.volume().disk_of(file);
  run_slowly(
      std::move(reply), disk,
      [&file, mode, offset, length, caller = caller_of(request)](Reply& answer) {
        answer.result(answer.volume().fallocate(file, mode, static_cast<std::uint64_t>(offset),
                                                static_cast<std::uint64_t>(length), caller));
      });
}

void op_copy_file_range(fuse_req_t request, fuse_ino_t, off_t from_offset,
                        fuse_file_info* from_info, fuse_ino_t, off_t to_offset,
                        fuse_file_info* to_info, std::size_t length, int flags) noexcept {
  Reply reply(request, Operation::kCopyFileRange);
  if (flags != 0) return reply.error(fail(EINVAL, "copy_file_range flags"));
  // The answer carries 32 bits; the caller goes on where a copy ended.
  constexpr std::size_t kMost = 0x7fff'f000;
  OpenFile& from = *reply.file(from_info);
  OpenFile& to = *reply.file(to_info);
  const auto disk = reply.volume().disk_to_wait_for(from, to);
  run_slowly(std::move(reply), disk,
             [&from, &to, from_offset, to_offset, length = std::min(length, kMost),
              caller = caller_of(request)](Reply& answer) {
               const Result<std::uint64_t> copied = answer.volume().copy_range(
                   from, static_cast<std::uint64_t>(from_offset), to,
                   static_cast<std::uint64_t>(to_offset), length, caller);
               before_answer(&from);  // the reply remembers one file, `to`
               if (!copied) return answer.error(copied.error());
               answer.written(*copied);
             });
}

}  // namespace kvcachefs
