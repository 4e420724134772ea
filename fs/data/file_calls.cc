// The calls on a descriptor.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "backend/allocated.h"
#include "backend/base/log.h"
#include "fs/data/files.h"
#include "fs/known/task_ending.h"
#include "fs/life/check_kept.h"
#include "fs/life/give_up_bytes.h"
#include "fs/life/page_cache.h"
#include "fs/life/states.h"
#include "fs/names/attrs.h"
#include "fs/names/credentials.h"
#include "fs/names/native_map.h"
#include "fs/node/attributes.h"

namespace kvcachefs {
namespace {

// One request copies at most this much, so that its thread comes back in bounded time; the
// kernel asks for the rest.
constexpr std::uint64_t kMostCopiedAtOnce = 64ull << 20;

// Of a file that its application cannot do without.
constexpr std::uint32_t kNeededAgain = kInodeFsynced | kInodeKeep;

// The bytes are not there; others (EINVAL of O_DIRECT, EFBIG) say that the call was wrong.
bool is_of_disk(int code) { return code == ENOSPC || code == EDQUOT || code == EIO; }

// RWF_NOWAIT by itself begins to read ahead (filemap_get_pages(), mm/filemap.c), for which the
// queue of a disk that does not answer may have no room.
Result<void> check_cached(int fd, std::uint64_t offset, std::uint64_t length) {
  struct stat backing {};
  if (::fstat(fd, &backing) != 0) return fail_errno("status of a backing file");
  const auto size = static_cast<std::uint64_t>(backing.st_size);
  const std::uint64_t wanted = offset < size ? std::min(length, size - offset) : 0;
  if (!is_cached(fd, wanted, offset).value_or(true)) return fail(kMustWait, "not in memory");
  return {};
}

}  // namespace

Result<std::size_t> Files::read(OpenFile& file, std::span<std::byte> out,
                                std::uint64_t offset) {
  if (file.arriving != nullptr) TRY(file.arriving->wait_for(offset, out.size()));
  const auto descriptor = TRY(file.descriptor());
  const int fd = descriptor.get();
  const int how = refuses_to_wait() ? RWF_NOWAIT : 0;
  if (how != 0) TRY(check_cached(fd, offset, out.size()));
  std::optional<Devices::Question> asked;
  if (const auto disk = core_.devices->index_of(file.tier); how == 0 && disk)
    asked.emplace(*core_.devices, *disk);
  std::size_t done = 0;
  while (done < out.size()) {
    const iovec rest{.iov_base = out.data() + done, .iov_len = out.size() - done};
    const ssize_t got = ::preadv2(fd, &rest, 1, static_cast<off_t>(offset + done), how);
    if (got < 0 && errno == EINTR) continue;
    // EOPNOTSUPP: a filesystem that cannot tell.
    if (got < 0 && how != 0 && (errno == EAGAIN || errno == EOPNOTSUPP))
      return fail(kMustWait, "a disk is to be asked");
    if (got < 0) return fail_errno("read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Result<void> Files::strip_on_write(OpenFile& file, const Caller& caller) {
  Inode& inode = *file.inode;
  const std::lock_guard lock(inode.mutex);
  if ((inode.record.mode & (S_ISUID | S_ISGID)) == 0 &&
      (inode.record.flags & kInodeHasXattr) == 0)
    return {};
  InodeRecord next = inode.record;
  Edit edit;
  if (!TRY(strip_privileges(core_, inode.number, next, caller, false, edit))) return {};
  next.ctime = file_clock_now();
  TRY(commit_record(core_, inode, std::move(next), std::move(edit)));
  make_kernel_ask(inode);
  return {};
}

// For calls that change a file and reach the daemon in all modes. A write(2) does not in passthrough,
// so it is not refused in the others: a program does the same everywhere.
Result<void> Files::check_unfinished(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  if (is_final(inode.record)) return fail(EEXIST, "a published prefix file");
  return {};
}

Result<std::size_t> Files::write(OpenFile& file, std::span<const std::byte> data,
                                 std::uint64_t offset, const Caller& caller) {
  const auto descriptor = TRY(file.descriptor());
  const int fd = descriptor.get();
  note_closing(file, false);
  TRY(strip_on_write(file, caller));
  TRY(check_room(file, fd, offset, data.size()));
  if (offset < file.inode->appended_from.load()) file.inode->appended_object.store(kNoObject);
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t put =
        ::pwrite(fd, data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    // As write(2): what got through before the disk was full counts, the next call gets the
    // error.
    if (put < 0 && done > 0) break;
    if (put < 0) {
      const Error failed = fail_errno("write");
      if (is_of_disk(failed.code)) give_up_store(file, failed.code);
      return failed;
    }
    done += static_cast<std::size_t>(put);
  }
  return done;
}

// The evictor measures what is written every few milliseconds, or when it gets a CPU: a tenant
// that is near its bounds may have written a lot by then.
Result<void> Files::note_growth(Inode& inode, int fd, std::uint64_t length) {
  constexpr std::uint64_t kUnmeasured = kMiB;
  if (!core_.knowledge.tenants().had_any() ||
      inode.unmeasured.fetch_add(length, std::memory_order_relaxed) + length < kUnmeasured)
    return {};
  inode.unmeasured.store(0, std::memory_order_relaxed);
  struct stat backing {};
  if (::fstat(fd, &backing) != 0) return fail_errno("status of a backing file");
  {
    const std::lock_guard lock(inode.mutex);
    core_.budget.measured(inode, backing);
  }
  static_cast<void>(core_.budget.look_at_staying());
  return {};
}

// As Budget::check_growth(), of a file.
Result<void> Files::check_growth(Inode& inode) {
  const std::optional<std::uint32_t> device = TRY(device_of(inode));
  return device ? core_.budget.check_growth(*device, inode.tenant.load()) : Result<void>{};
}

// A file that grows when its device is full and nothing can go, or its tenant has too much that
// cannot go.
Result<void> Files::check_room(OpenFile& file, int fd, std::uint64_t offset,
                               std::uint64_t length) {
  TRY(note_growth(*file.inode, fd, length));
  const Result<void> grows = check_growth(*file.inode);
  if (grows.ok()) return {};
  if (TRY(unallocated_bytes(fd, offset, length)) == 0) return {};
  give_up_store(file, grows.error().code);
  return grows;
}

// A write of a new file has failed: it will not be whole. An application's own file has its
// errors by itself. The caller holds the lock.
void Files::poison(Inode& inode, int code) {
  if (inode.record.state != DataState::kUnpublished) return;
  if (const Result<void> marked = kvcachefs::poison(core_, inode, code); !marked.ok()) {
    inode.record.flags |= kInodePoisoned;
    log_warn("poison not recorded inode={} errno={}", inode.number, marked.error().code);
  }
}

// The same of what this open file stores, also where a duplicate of its descriptor was closed
// before, which has published what was there then.
void Files::give_up_store(const OpenFile& file, int code) {
  Inode& inode = *file.inode;
  const std::lock_guard lock(inode.mutex);
  poison(inode, code);
  const bool is_published =
      inode.record.state == DataState::kPublished || inode.record.state == DataState::kMutable;
  if (!is_published || !file.makes || inode.write_opens != file.write_open ||
      inode.record.object != file.object)
    return;
  inode.write_errno = code;
  inode.torn_object.store(file.object);
}

// Stores through a mapping are seen by nobody: where they went over the budget, and nothing can go, the file
// does not become one that must stay. It goes at once, or, published, as soon as it is closed.
Result<void> Files::check_mapped(Inode& inode) {
  const Result<void> grows = check_growth(inode);
  if (grows.ok()) return {};
  const std::lock_guard lock(inode.mutex);
  const bool is_new =
      is_unsealed(inode.record.state) && inode.record.state != DataState::kMutable;
  if (!is_new || (inode.record.flags & kInodeFsynced) != 0) return {};
  poison(inode, grows.error().code);
  return grows;
}

// Before what was changed since the seal: else a cut in between finds a sealed file that is another one.
Result<void> Files::sync_change(Inode& inode) {
  {
    const std::lock_guard lock(inode.mutex);
    if (!std::exchange(inode.change_unsynced, false)) return {};
  }
  const Result<void> synced = core_.catalog.sync();
  if (synced.ok()) return synced;
  const std::lock_guard lock(inode.mutex);
  inode.change_unsynced = true;
  return synced;
}

Result<void> Files::sync_bytes(Inode& inode, int fd) {
  TRY(sync_change(inode));
  if (::fdatasync(fd) == 0) return {};
  const Error failed = fail_errno("fdatasync");
  // The kernel tells it once: the seal's fdatasync would find nothing wrong.
  if (is_of_disk(failed.code)) {
    const std::lock_guard lock(inode.mutex);
    poison(inode, failed.code);
  }
  return failed;
}

Result<void> Files::make_durable(Inode& inode, int fd, std::uint32_t marks) {
  TRY(sync_bytes(inode, fd));
  TRY(check_mapped(inode));
  const bool keeps = (marks & kInodeKeep) != 0 && TRY(is_to_be_kept(inode));
  {
    const std::lock_guard lock(inode.mutex);
    if (keeps) TRY(check_kept(core_, inode));
    if (is_unsealed(inode.record.state) || (inode.record.flags & kInodeFsynced) == 0) {
      TRY(publish_locked(core_, inode));
    }
    if ((inode.record.flags & marks) != marks) {
      InodeRecord next = inode.record;
      next.flags |= marks;
      TRY(commit_record(core_, inode, std::move(next), {}, Lend::kYes));
    }
  }
  return core_.catalog.sync();
}

// By an fsync, where nobody has a say but the application. Where nobody has a share or a quota
// it does not matter.
Result<bool> Files::is_to_be_kept(Inode& inode) {
  if (!core_.knowledge.tenants().had_any()) return false;
  InodeRecord kept;
  {
    const std::lock_guard lock(inode.mutex);
    if ((inode.record.flags & kInodeKeep) != 0) return false;
    kept = inode.record;
  }
  kept.flags |= kInodeKeep;
  return TRY(core_.knowledge.treatment(inode.number, kept)).is_kept();
}

// Its bytes. Not those of an object that is not the inode's any more.
Result<void> Files::bring_to_disk(Inode& inode, int fd, ObjectId object) {
  BytesOnDisk bytes{.object = object, .stamp = {}, .write_opens = 0};
  bool is_new = false;
  {
    const std::lock_guard lock(inode.mutex);
    if (!is_unsealed(inode.record.state) || inode.record.object != object) return {};
    struct stat backing {};
    if (::fstat(fd, &backing) != 0) return fail_errno("status of a backing file");
    bytes.stamp = stamp_of(backing);
    bytes.write_opens = inode.write_opens;
    if (inode.on_disk == bytes) return {};
    is_new = inode.record.state == DataState::kUnpublished &&
             inode.record.previous_object == kNoObject;
  }
  TRY(sync_bytes(inode, fd));
  // Of a rewrite what it replaces makes room.
  if (is_new) TRY(check_mapped(inode));
  const std::lock_guard lock(inode.mutex);
  inode.on_disk = bytes;
  return {};
}

// It is published last: what it replaces goes with that.
Result<void> Files::keep_safe(Inode& inode, int fd, ObjectId object) {
  TRY(bring_to_disk(inode, fd, object));
  const std::lock_guard lock(inode.mutex);
  // Somebody writes it anew by now: his close is another one.
  if (inode.record.object != object) return {};
  if (const Result<void> kept = check_kept(core_, inode); !kept.ok()) {
    if (inode.record.state == DataState::kUnpublished)
      TRY(kvcachefs::poison(core_, inode, kept.error().code));
    return kept;
  }
  inode.kept = true;
  const std::uint32_t sticky = core_.options.keep_by_default ? std::uint32_t{kInodeKeep} : 0;
  return publish_locked(core_, inode, kInodeOnDisk | sticky);
}

Result<void> Files::keep_safe(InodeNumber number) {
  const Result<InodePtr> found = core_.table.get(number);
  // Whoever asked finds that out by himself, and looks again.
  if (!found.ok() && (found.error().code == ESTALE || found.error().code == ENOENT)) return {};
  const InodePtr inode = TRY(found);
  if (!inode->is_file()) return {};
  inode->close_waits.store(true, std::memory_order_relaxed);
  UniqueFd fd;
  ObjectId object = kNoObject;
  {
    const std::lock_guard lock(inode->mutex);
    // What is sealed, and what the pool has, is safe.
    if (!is_unsealed(inode->record.state)) return {};
    Tier* tier = TRY(core_.devices->of(*inode));
    object = inode->record.object;
    fd = TRY(tier->open(object, O_RDONLY));
  }
  return keep_safe(*inode, fd.get(), object);
}

// A shell that redirects closes a duplicate of its descriptor before anything is written, as dd
// does: what is empty is whole at its last close, and until then it is none whose writing can
// fail unseen. What a rewrite replaces goes with that.
Result<bool> Files::is_empty_store(Inode& inode) {
  if (inode.record.state != DataState::kUnpublished ||
      (inode.record.flags & kInodePoisoned) != 0)
    return false;
  Tier* tier = TRY(core_.devices->of(inode));
  return TRY(tier->status(inode.record.object)).st_size == 0;
}

// Of a file that is about to be published, or was changed since its last close. Not what an
// application has synced, or changes in its place: that is as on any filesystem, but for a
// block, which is whole or a miss.
Result<bool> Files::is_half_stored(const OpenFile& file) {
  Inode& inode = *file.inode;
  const InodeRecord& record = inode.record;
  // The closes of others publish what they write as well.
  if (record.object != file.object || record.nlink == 0 || inode.writers > 1) return false;
  // A file that others have open, and nobody has written to, may be a lock.
  if (record.state == DataState::kUnpublished)
    return record.previous_object != kNoObject || inode.opens == 1 ||
           !TRY(is_empty_store(inode));
  const bool is_block = inode.block.load(std::memory_order_relaxed) != 0;
  if ((record.flags & kInodeFsynced) != 0 || !(file.makes || is_block) ||
      inode.write_opens != file.write_open || !is_unsealed(record.state))
    return false;
  Tier* tier = TRY(core_.devices->of(inode));
  return stamp_of(TRY(tier->status(record.object))) != record.stamp;
}

// The kernel closes what a task leaves open that ends: half of a block is not stored by that,
// but what a task leaves that says that all went well is whole, as in "(a; b) > FILE". What no
// layout knows is as on any filesystem, unless the task was killed: programs that are told to
// end leave their logs open, and pipelines their output.
Result<bool> Files::is_left_behind(OpenFile& file, const Caller& caller) {
  {
    const std::lock_guard lock(file.inode->mutex);
    if (!TRY(is_half_stored(file))) return false;
  }
  const TaskEnding ending = ending_of(caller.pid);
  const bool is_block = file.inode->block.load(std::memory_order_relaxed) != 0;
  return is_block ? ending.has_failed() : ending.was_killed();
}

// Published: from here on it may be evicted, and must be known to who does that.
void Files::store_done(Inode& inode) {
  core_.knowledge.store_done(inode);
  if (inode.block.load(std::memory_order_relaxed) == 0)
    core_.budget.used_as(inode.number, inode.tenant.load(std::memory_order_relaxed));
}

Result<std::optional<std::uint32_t>> Files::device_of(Inode& inode) {
  const auto lock = TRY(lock_to_look(inode));
  return inode.device;
}

Result<FlushCost> Files::flush_cost(const OpenFile& file, bool waits_for_room) {
  if (!file.writable()) return FlushCost::kQuick;
  const std::optional<std::uint32_t> device = TRY(device_of(*file.inode));
  if (waits_for_room && device &&
      core_.budget.waits_for_room(*device, file.inode->tenant.load(std::memory_order_relaxed)))
    return FlushCost::kWaitsForRoom;
  return file.inode->close_waits.load(std::memory_order_relaxed) ? FlushCost::kWaitsForDisk
                                                                 : FlushCost::kQuick;
}

void Files::wait_for_room(const OpenFile& file, std::chrono::steady_clock::time_point called) {
  if (const auto device = device_of(*file.inode); device.ok() && *device)
    core_.budget.wait_for_room(**device, file.inode->tenant.load(), called);
}

void Files::note_closing(OpenFile& file, bool is_closing) {
  if (file.is_closing.load(std::memory_order_relaxed) == is_closing) return;
  const std::lock_guard lock(file.inode->mutex);
  if (file.is_closing.exchange(is_closing) == is_closing) return;
  if (is_closing)
    ++file.inode->closing;
  else
    --file.inode->closing;
}

Result<void> Files::flush(OpenFile& file, const Caller& caller) {
  if (!file.writable()) return {};
  note_closing(file, true);
  TRY(check_given_up(core_, *file.inode));
  if (is_another_process(caller, file.opener)) return {};
  if (TRY(is_left_behind(file, caller))) {
    give_up_store(file, kWriterEnded);
    return {};
  }
  Inode& inode = *file.inode;
  std::unique_lock look(inode.mutex);
  const bool is_empty = TRY(is_empty_store(inode));
  look.unlock();
  const bool waits = inode.close_waits.load(std::memory_order_relaxed);
  if (is_empty && !waits) return {};
  if (waits) {
    const auto descriptor = TRY(file.descriptor());
    const int fd = descriptor.get();
    if (is_empty) return bring_to_disk(inode, fd, file.object);
    TRY(keep_safe(inode, fd, file.object));
  } else {
    const std::lock_guard lock(inode.mutex);
    TRY(publish_locked(core_, inode));
    // It was to be kept when somebody closed it last.
    TRY(unmark_on_disk(core_, inode));
  }
  store_done(inode);
  return waits ? core_.catalog.sync() : Result<void>{};
}

Result<void> Files::fsync(OpenFile& file, bool /*data_only*/, const Caller& caller) {
  note_closing(file, false);  // A duplicate was closed; this descriptor was not.
  TRY(check_given_up(core_, *file.inode));
  bool is_marked = false;
  {
    const std::lock_guard lock(file.inode->mutex);
    is_marked = (file.inode->record.flags & kNeededAgain) == kNeededAgain;
  }
  // A database syncs again and again: who asks matters once.
  const bool says_nothing = !is_marked && (core_.knowledge.serves_nfs(caller.pid) ||
                                           !may_keep(caller, core_.options.keepers));
  return make_durable(*file.inode, TRY(file.descriptor()).get(),
                      says_nothing ? kInodeFsynced : kNeededAgain);
}

Result<void> Files::fallocate(OpenFile& file, int mode, std::uint64_t offset,
                              std::uint64_t length, const Caller& caller) {
  const bool supported = mode == 0 || mode == FALLOC_FL_KEEP_SIZE ||
                         mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) ||
                         mode == FALLOC_FL_ZERO_RANGE ||
                         mode == (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE);
  if (!supported) return fail(EOPNOTSUPP, "fallocate mode");
  TRY(check_unfinished(*file.inode));
  const auto descriptor = TRY(file.descriptor());
  const int fd = descriptor.get();
  TRY(strip_on_write(file, caller));
  file.inode->appended_object.store(kNoObject);
  const bool takes = (mode & FALLOC_FL_PUNCH_HOLE) == 0;
  const std::optional<Reservation> room =
      takes ? TRY(take_room(*file.inode, fd, offset, length, length)) : std::nullopt;
  while (::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    if (errno != EINTR) return fail_errno("fallocate");
  }
  if (!takes) return {};
  // Before the reservation ends: others would see the room once more.
  struct stat backing {};
  const std::lock_guard lock(file.inode->mutex);
  file.inode->allocated_end = std::max(file.inode->allocated_end, offset + length);
  if (::fstat(fd, &backing) == 0) core_.budget.measured(*file.inode, backing);
  return {};
}

// Room for what a call is about to take of a range of the file, `most` of it at most.
Result<std::optional<Reservation>> Files::take_room(Inode& inode, int fd, std::uint64_t offset,
                                                    std::uint64_t length, std::uint64_t most) {
  struct stat backing {};
  if (::fstat(fd, &backing) != 0) return fail_errno("status of a backing file");
  std::optional<std::uint32_t> device;
  // The bytes that the disk has set aside for it become its own.
  std::uint64_t taken = 0;
  {
    const std::lock_guard lock(inode.mutex);
    device = inode.device;
    taken = allocated_bytes(backing) - written_bytes(inode, backing);
  }
  taken = std::min(most, taken + TRY(unallocated_bytes(fd, offset, length)));
  std::optional<Reservation> room;
  if (device && taken > 0)
    room.emplace(
        TRY(core_.budget.reserve(inode, *device, taken, std::chrono::steady_clock::now())));
  return room;
}

Result<std::uint64_t> Files::seek(OpenFile& file, std::uint64_t offset, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return fail(EINVAL, "lseek");
  // What has not come yet looks like a hole.
  if (file.arriving != nullptr && !file.arriving->has(0, UINT64_MAX)) {
    std::uint64_t size = 0;
    {
      const auto lock = TRY(lock_to_look(*file.inode));
      size = file.inode->record.stamp.size;
    }
    if (offset >= size) return fail(ENXIO, "lseek");
    return whence == SEEK_DATA ? offset : size;
  }
  const off_t at = ::lseek(TRY(file.descriptor()).get(), static_cast<off_t>(offset), whence);
  if (at < 0) return fail_errno("lseek");
  return static_cast<std::uint64_t>(at);
}

Result<std::uint64_t> Files::copy_range(OpenFile& from, std::uint64_t from_offset, OpenFile& to,
                                        std::uint64_t to_offset, std::uint64_t length,
                                        const Caller& caller) {
  TRY(check_unfinished(*to.inode));
  // The kernel reads and writes then, as for two filesystems (fuse_copy_file_range(), fs/fuse/file.c): reads have
  // threads of their own for waiting.
  if (from.arriving != nullptr &&
      !from.arriving->has(from_offset, std::min(length, kMostCopiedAtOnce)))
    return fail(EXDEV, "what is to be copied is on its way");
  const auto descriptor_in = TRY(from.descriptor());
  const auto descriptor_out = TRY(to.descriptor());
  const int in = descriptor_in.get();
  const int out = descriptor_out.get();
  TRY(strip_on_write(to, caller));
  to.inode->appended_object.store(kNoObject);
  length = std::min(length, kMostCopiedAtOnce);
  TRY(check_room(to, out, to_offset, length));
  // So many bytes at once are more than the looks at what grows would see in time.
  const std::uint64_t data = length - TRY(unallocated_bytes(in, from_offset, length));
  const auto room = take_room(*to.inode, out, to_offset, length, data);
  if (!room.ok()) {
    give_up_store(to, room.error().code);
    return room.error();
  }
  off_t in_at = static_cast<off_t>(from_offset);
  off_t out_at = static_cast<off_t>(to_offset);
  const ssize_t copied = ::copy_file_range(in, &in_at, out, &out_at, length, 0);
  if (copied < 0) return fail_errno("copy_file_range");
  // Before the reservation ends.
  struct stat backing {};
  const std::lock_guard lock(to.inode->mutex);
  if (::fstat(out, &backing) == 0) core_.budget.measured(*to.inode, backing);
  return static_cast<std::uint64_t>(copied);
}

}  // namespace kvcachefs
