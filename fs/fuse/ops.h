// The handlers, a file to each kind of request: decode, call the volume, answer. No policy.
//
// Any thread of the session calls them; they throw nothing. On a ring's thread, which serves
// one CPU's callers, they only look: what changes something is done by workers, for it waits
// for a disk that takes no writes.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "backend/base/must_wait.h"
#include "fs/fuse/reply.h"

namespace kvcachefs {

// What libfuse is given.
[[nodiscard]] const fuse_lowlevel_ops& operation_table() noexcept;

// Calls of one user that do not wait for each other, though they are in one pool. kOfDisk: those
// about files of one disk; last, for each disk counts from there on.
enum class Kind : std::uint8_t { kAny, kRead, kOfDisk };
[[nodiscard]] constexpr std::uint64_t party_of(std::uint32_t user, Kind kind,
                                               std::uint32_t disk = 0) noexcept {
  return user | (static_cast<std::uint64_t>(kind) + disk) << 32;
}

// Runs `work(reply)` on a worker, for calls that may wait. `quarters` of what may be parked are
// for calls of this kind. False: no place was left for its user, and nothing was done.
template <class Work>
[[nodiscard]] bool run_parked(Reply& reply, FairPool& workers, std::size_t quarters,
                              Work&& work, Kind kind = Kind::kAny, std::uint32_t disk = 0) {
  OperationContext& context = reply.context();
  const std::uint32_t user = caller_of(reply.request()).uid;
  // Counted first and compared then: who sets the limit to 0 and sees no parked request knows
  // that none follows.
  context.parked.fetch_add(1);
  Parking::Place place =
      Parking::of_this_thread().enter(user, context.parked_limit.load() * quarters / 4);
  if (!place) {
    context.parked.fetch_sub(1);
    return false;
  }
  reply.park(std::move(place));
  auto shared = std::make_shared<Reply>(std::move(reply));
  const auto task = [&context, shared, work = std::forward<Work>(work)] {
    work(*shared);
    context.parked.fetch_sub(1);
  };
  if (!workers.try_post(party_of(user, kind, disk), task)) task();
  return true;
}

// What is left of a parked call goes on in another pool; its place is kept.
template <class Work>
void go_on(Reply&& reply, FairPool& workers, Work work) {
  OperationContext& context = reply.context();
  const std::uint32_t user = caller_of(reply.request()).uid;
  context.parked.fetch_add(1);
  auto shared = std::make_shared<Reply>(std::move(reply));
  const auto task = [&context, shared, work = std::move(work)] {
    work(*shared);
    context.parked.fetch_sub(1);
  };
  if (!workers.try_post(user, task)) task();
}

// For calls that may wait for a disk, that one (Volume::disk_of()) or whatever they need. Who
// has so many of them on their way that no place is left is told to ask again: on the thread
// that reads everybody's requests none may run.
template <class Work>
void run_slowly(Reply reply, std::optional<std::uint32_t> disk, Work work) {
  if (!run_parked(reply, reply.context().slow_calls->of(disk), 4, std::move(work)))
    reply.error(fail(EINTR, "too many wait for the disk"));
}

constexpr std::optional<std::uint32_t> kNoDisk;

// For calls that change a name, a record or a local file: they end at once, but on a disk that
// takes no writes, where each waits as long as that lasts. Where its user has so many of them
// on their way that no place is left, it is done here as long as the disks are well; else it is
// refused. `disk`: of the file that it is about; its calls wait for no others.
template <class Work>
void run_change(Reply reply, Work work, std::optional<std::uint32_t> disk = kNoDisk) {
  OperationContext& context = reply.context();
  if (!context.is_ring) return work(reply);
  FairPool* const workers = context.change_calls->of_this_thread();
  const Kind kind = disk ? Kind::kOfDisk : Kind::kAny;
  if (workers != nullptr && run_parked(reply, *workers, 4, work, kind, disk.value_or(0)))
    return;
  if (disk ? reply.volume().is_stuck(*disk) : reply.volume().is_stalled())
    return reply.error(fail(EIO, "too many wait for a disk that does not answer"));
  work(reply);
}

template <class T>
[[nodiscard]] bool must_wait(const Result<T>& result) noexcept {
  return !result.ok() && result.error().code == kMustWait;
}

// For calls that only look: `ask(volume)`, a Result, is made here, and once more on a worker
// where it would have to wait; then `answer(reply, result)`.
template <class Ask, class Answer>
void run_look(Reply reply, Ask ask, Answer answer) {
  if (reply.context().is_ring) {
    std::optional<RefusesToWait> here(std::in_place);
    auto found = ask(reply.volume());
    here.reset();
    if (!must_wait(found)) return answer(reply, std::move(found));
  }
  run_change(std::move(reply), [ask = std::move(ask), answer = std::move(answer)](Reply& late) {
    answer(late, ask(late.volume()));
  });
}

// Asks before it is known where a call is to run, of what answers for a thread that refuses to
// wait.
template <class Ask>
[[nodiscard]] auto look_here(const Reply& reply, Ask ask) {
  std::optional<RefusesToWait> here;
  if (reply.context().is_ring) here.emplace();
  return ask(reply.volume());
}

// The same for a question that may end with kMustWait: `otherwise`, where the answer would
// have to be waited for.
template <class Ask, class Value>
[[nodiscard]] Value look_or(const Reply& reply, Ask ask, Value otherwise) {
  const Result<Value> found = look_here(reply, ask);
  return found.ok() ? *found : otherwise;
}

// For a call that waits for room.
template <class Work>
[[nodiscard]] bool run_when_room(Reply& reply, Work work) {
  return run_parked(reply, *reply.context().room_calls, 3, std::move(work));
}

// For a call that waits for the pool.
template <class Work>
[[nodiscard]] bool run_on_pool(Reply& reply, Work work) {
  return run_parked(reply, *reply.context().pool_calls, 2, std::move(work));
}

// For a lookup that does: it does not wait behind opens, which take longer.
template <class Work>
[[nodiscard]] bool run_lookup(Reply& reply, Work work) {
  return run_parked(reply, *reply.context().lookup_calls, 2, std::move(work));
}

// op_lookup.cc
void op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;
void op_forget(fuse_req_t request, fuse_ino_t inode, std::uint64_t lookups) noexcept;
void op_forget_multi(fuse_req_t request, std::size_t count, fuse_forget_data* forgets) noexcept;
// Answers with what a new or found name is, and gives the lookup back when nobody is there to
// take it.
void answer_entry(Reply reply, const Result<Entry>& entry) noexcept;

// op_attr.cc
void op_getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
#ifdef KVCACHEFS_HAVE_STATX
void op_statx(fuse_req_t request, fuse_ino_t inode, int flags, int mask,
              fuse_file_info* info) noexcept;
#endif
void op_setattr(fuse_req_t request, fuse_ino_t inode, struct stat* attributes, int to_set,
                fuse_file_info* info) noexcept;
void op_statfs(fuse_req_t request, fuse_ino_t inode) noexcept;

// op_names.cc
void op_readlink(fuse_req_t request, fuse_ino_t inode) noexcept;
void op_mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
              dev_t rdev) noexcept;
void op_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept;
void op_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;
void op_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;
void op_symlink(fuse_req_t request, const char* target, fuse_ino_t parent,
                const char* name) noexcept;
void op_rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
               const char* new_name, unsigned flags) noexcept;
void op_link(fuse_req_t request, fuse_ino_t inode, fuse_ino_t new_parent,
             const char* new_name) noexcept;

// op_open.cc
void op_open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
void op_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* info) noexcept;
void op_tmpfile(fuse_req_t request, fuse_ino_t parent, mode_t mode,
                fuse_file_info* info) noexcept;
void op_release(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;

// op_data.cc
void op_read(fuse_req_t request, fuse_ino_t inode, std::size_t size, off_t offset,
             fuse_file_info* info) noexcept;
void op_write(fuse_req_t request, fuse_ino_t inode, const char* bytes, std::size_t size,
              off_t offset, fuse_file_info* info) noexcept;
void op_lseek(fuse_req_t request, fuse_ino_t inode, off_t offset, int whence,
              fuse_file_info* info) noexcept;
void op_ioctl(fuse_req_t request, fuse_ino_t inode, unsigned command, void* argument,
              fuse_file_info* info, unsigned flags, const void* in, std::size_t in_size,
              std::size_t out_size) noexcept;

// op_sync.cc
void op_flush(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
void op_fsync(fuse_req_t request, fuse_ino_t inode, int data_only,
              fuse_file_info* info) noexcept;
void op_fsyncdir(fuse_req_t request, fuse_ino_t inode, int data_only,
                 fuse_file_info* info) noexcept;
void op_fallocate(fuse_req_t request, fuse_ino_t inode, int mode, off_t offset, off_t length,
                  fuse_file_info* info) noexcept;
void op_copy_file_range(fuse_req_t request, fuse_ino_t from, off_t from_offset,
                        fuse_file_info* from_info, fuse_ino_t to, off_t to_offset,
                        fuse_file_info* to_info, std::size_t length, int flags) noexcept;

// op_dir.cc
void op_releasedir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
void op_opendir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
void op_readdir(fuse_req_t request, fuse_ino_t inode, std::size_t size, off_t offset,
                fuse_file_info* info) noexcept;
void op_readdirplus(fuse_req_t request, fuse_ino_t inode, std::size_t size, off_t offset,
                    fuse_file_info* info) noexcept;

// op_xattr.cc
void op_setxattr(fuse_req_t request, fuse_ino_t inode, const char* name, const char* value,
                 std::size_t size, int flags) noexcept;
void op_getxattr(fuse_req_t request, fuse_ino_t inode, const char* name,
                 std::size_t size) noexcept;
void op_listxattr(fuse_req_t request, fuse_ino_t inode, std::size_t size) noexcept;
void op_removexattr(fuse_req_t request, fuse_ino_t inode, const char* name) noexcept;

}  // namespace kvcachefs
