// What the daemon holds in memory of one inode, while the kernel knows it, a file of it is
// open, or work is under way.
//
// Everything but the first three is guarded by `mutex`, "the inode's lock". `record` is always
// what the catalog holds: a change is made on a copy, committed, and then stored here, all
// under the lock, so that the commits of one inode are in order. The lock is held across calls
// into the local database, which wait for a disk only while that takes no writes, and never
// across a sync, a read of file data, or a reply.
//
// Life: a shared_ptr keeps it. The inode table hands it out, one object per number at a time;
// when the last reference goes and no name is left, the reaper is told.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/base/must_wait.h"
#include "backend/base/result.h"
#include "fs/node/inode_mutex.h"
#include "fs/node/unfound.h"
#include "metadata/record.h"

namespace kvcachefs {

struct Place;  // fs/known/place.h

// Bytes that were on the disk once. Equal: they have not changed since.
struct BytesOnDisk {
  ObjectId object = kNoObject;
  DataStamp stamp;
  std::uint64_t write_opens = 0;  // a clock's tick may see a whole further rewrite
  bool operator==(const BytesOnDisk&) const = default;
};

// Inode::write_errno of a file whose writer has ended without closing it.
inline constexpr int kWriterEnded = ECANCELED;

struct Inode {
  Inode(InodeNumber its_number, InodeRecord its_record)
      : number(its_number), type(its_record.mode & S_IFMT), record(std::move(its_record)) {}

  [[nodiscard]] bool is_file() const noexcept { return type == S_IFREG; }
  // Its names are about to go: who looks for it finds a miss already. Under the lock.
  [[nodiscard]] bool is_going() const noexcept {
    const bool failed = record.state == DataState::kUnpublished &&
                        (writers == 0 || is_abandoned()) &&
                        (record.flags & kInodePoisoned) != 0;
    return evicting || failed;
  }
  // Its writer has ended without closing it. Under the lock.
  [[nodiscard]] bool is_abandoned() const noexcept { return write_errno == kWriterEnded; }

  const InodeNumber number;
  const std::uint32_t type;  // S_IFMT bits; never changes, so it needs no lock
  // It has no name any more, but the kernel does not know: it came second to the file of its prefix hash and
  // is taken for that one until the kernel looks again, or it was evicted. By its number there is no such
  // inode, only its open files go on. Its bytes go with these. Set once, under the lock.
  std::atomic<bool> disowned{false};
  InodeMutex mutex;
  // A leaf: who gives `record` another value holds both, so that what is only shown of a
  // directory waits for no commit in it.
  mutable std::mutex shown_mutex;
  InodeRecord record;
  // Of a directory: it waits for no commit in it.
  [[nodiscard]] InodeRecord shown() const {
    const std::lock_guard shown(shown_mutex);
    return record;
  }
  // Returns what it was. The caller holds `mutex`.
  InodeRecord set_record(InodeRecord&& next) {
    const std::lock_guard shown(shown_mutex);
    if (!is_read_alone(next)) changes.fetch_add(1);
    return std::exchange(record, std::move(next));
  }

  // Nothing differs but the access time.
  [[nodiscard]] bool is_read_alone(const InodeRecord& next) const {
    if (next.atime == record.atime) return false;
    InodeRecord read = record;
    read.atime = next.atime;
    return read == next;
  }

  // Where the object's backing file is: index into the catalog's device table; known after the
  // first look.
  std::optional<std::uint32_t> device;
  // Regular files: open descriptions, and those among them that may write.
  std::uint32_t opens = 0;
  std::uint32_t writers = 0;
  // The kernel may have attributes of it that it does not ask for again: they were shown with a
  // timeout.
  mutable std::atomic<bool> is_remembered{false};
  // It was open for reading and writing, served by the kernel, since its seal: who mapped it
  // may store with no descriptor open.
  bool may_be_stored_to = false;
  // Of the writers those that are closing (OpenFile::is_closing): close(2) does not wait for RELEASE.
  std::uint32_t closing = 0;
  // Those that read through the kernel's page cache: as long as there are some it refuses passthrough.
  std::uint32_t cached_opens = 0;
  // Writers whose bytes pass the kernel's page cache by, through the daemon. Never beside cached opens.
  std::uint32_t direct_writers = 0;
  // There were some since the last cached open.
  bool has_old_pages = false;
  // What was on the disk at the last close that waited for that.
  BytesOnDisk on_disk = {};
  // Its close waits for the disk, as it must not be lost: as of its last opening for writing, or of what came to it later.
  std::atomic<bool> close_waits{false};
  // When its last writer closed it, by the clock of files; 0: none since it came into memory.
  UnixNanos closed_at = 0;
  // The number of its last open for writing (Core::write_opens), 0: none since it came into memory. The seal compares it to
  // notice a writer that came and went meanwhile, and a flush to notice one that came after it.
  std::uint64_t write_opens = 0;
  // Its place among those the table keeps because they were looked up last, from 1; 0: none.
  // Guarded by the table's lock.
  std::uint32_t recent_place = 0;
  // When a directory was listed, or a symlink read, if the record does not say it yet, else 0
  // (fs/names/read_times.h).
  std::atomic<UnixNanos> read_at{0};
  // How often `record` was given another value, but for its access time. Of a directory:
  // whenever a name has come or gone, after that can be seen and before it is answered.
  std::atomic<std::uint64_t> changes{0};
  // Directories: cookies from this one on were given after the last listing began, and are not
  // part of it; 0: none has begun since it came into memory.
  std::atomic<std::uint64_t> listing_end{0};
  // Directories: the path, from the last time somebody asked. Under a lock of its own, a leaf: a
  // lookup must not wait for a commit in the directory.
  std::mutex place_mutex;
  std::shared_ptr<const Place> place;
  // The same: how often its names were noted to be read anew (fs/known/block_keeper.h), since
  // it came into memory.
  std::atomic<std::uint32_t> times_unread{0};
  // The block of KV cache that it was last looked up or made as (fs/known/block_number.h), 0: none.
  std::atomic<std::uint64_t> block{0};
  // The runtime and model of that (fs/known/use_table.h).
  std::atomic<std::uint32_t> series{0};
  // Where the bytes end that an application has had allocated for it (fallocate), perhaps
  // beyond its size; 0: none since it came into memory.
  std::uint64_t allocated_end = 0;
  // It was made under its final name: what stores it is not done before its first publication.
  std::atomic<bool> being_stored{false};
  // Made under a prefix hash: the thread that did, whose process alone finds it until it is published.
  pid_t creator = 0;
  // Of the stager (fs/life/stager.h): when it was told of it last, and whether it was read ahead and not
  // loaded since.
  std::atomic<std::int64_t> hinted_at{0};
  std::atomic<bool> staged{false};
  // When the pool last said that it is there as it is here (fs/pool/pool_files.h): monotonic nanoseconds; 0: not
  // since it came into memory.
  std::atomic<std::int64_t> pool_checked{0};
  // Of a directory: when the pool last said that nothing is in it there; monotonic nanoseconds, 0: never.
  std::atomic<std::int64_t> empty_on_pool{0};
  // Daemon-served: somebody has opened it for reading since it came into memory.
  bool was_read = false;
  // What `device` was known to be last, -1: nothing; for who does not wait for the lock.
  std::atomic<std::int64_t> disk{-1};
  // When its backing file was found last, in monotonic nanoseconds.
  std::atomic<std::int64_t> seen_at{0};
  // It is being evicted.
  bool evicting = false;
  // Its names, or what directories were told, keep it: as of its close, its seal, or the last
  // count.
  bool kept = false;
  // Whose directory its first name is in (fs/known/tenants.h): as of its making, renaming or seal, or of
  // the last count. Written under `mutex`.
  std::atomic<std::uint8_t> tenant{0};
  // Nothing is left to be noted of its use, for the pool.
  std::atomic<bool> use_noted{false};
  // Of an unpublished file that is open for writing: what Budget::danger() was then.
  std::uint64_t danger_at_open = 0;
  // It was sealed, and the record that it is no more may not have reached the disk.
  bool change_unsynced = false;
  // What close, fsync and rename of a poisoned file say: the error of the write that failed.
  int write_errno = EIO;
  // Bytes that the daemon has written to it since it was measured last, of tenants.
  std::atomic<std::uint64_t> unmeasured{0};
  // The next close or fsync says this of bytes that were taken back (fs/life/give_up_bytes.h);
  // 0: nothing.
  std::atomic<int> lost_errno{0};
  // Of a directory that was made with nothing in it: what lookups that ended at its absence were taken for
  // (Knowledge::became()), until its first block is made. 0: nothing.
  std::atomic<std::uint64_t> absent{0};
  // Of such a directory: how many those lookups were (fs/known/lookup_counts.h), until its first file is made.
  std::atomic<Unfound> unfound{};
  // An object of which a write was refused: it is not whole.
  std::atomic<ObjectId> refused_object{kNoObject};
  // The same of one that nobody waits for, of a mapping.
  std::atomic<ObjectId> torn_object{kNoObject};
  // The object of the last seal, to which bytes were added since then and nothing else: what it
  // had, `appended_from` bytes, stands. kNoObject: something else may have changed.
  std::atomic<ObjectId> appended_object{kNoObject};
  std::atomic<std::uint64_t> appended_from{0};
  // One that was open for reading and writing: who has mapped it may store unseen, without a
  // descriptor.
  ObjectId mappable_object = kNoObject;
  // When it was sealed last since it is in memory, on the monotonic clock; 0: not yet.
  std::int64_t sealed_at_ns = 0;
  // An object whose bytes are not the sealed ones: nobody opens it any more.
  ObjectId damaged_object = kNoObject;
  // The backing id of `record.object`, 0: none is registered. One per object: the kernel
  // refuses a second one.
  int backing_id = 0;
  // The object that `backing_id` stands for.
  ObjectId backing_object = kNoObject;
};

// The inode's lock, of a call that only looks. Error: kMustWait, it is not free, and this
// thread refuses to wait.
[[nodiscard]] inline Result<std::unique_lock<InodeMutex>> lock_to_look(Inode& inode) {
  if (!inode.mutex.try_lock_to_look()) {
    if (refuses_to_wait()) return fail(kMustWait, "a change of the inode is under way");
    inode.mutex.lock_to_look();
  }
  return std::unique_lock(inode.mutex, std::adopt_lock);
}

using InodePtr = std::shared_ptr<Inode>;

}  // namespace kvcachefs
