// The filesystem behind one mount, without FUSE: names, attributes, xattrs and files, over the
// catalog and the devices.
//
// What enters is decoded and named by inode numbers; what leaves is a value or an errno that
// may go to the user as it is. Any thread may call any method. Methods are calls into the local
// filesystem and the local database; those marked *slow* may wait for a disk's write-back and
// must not run on a thread that others depend on.
//
// Permissions are checked by the kernel (default_permissions) before a call gets here;
// ownership and mode live in the catalog. Lookup counts: every method that returns an Entry has
// counted one lookup of its inode; the caller either delivers the entry to the kernel or gives
// the count back with forget().
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/result.h"
#include "backend/tier.h"
#include "fs/budget/budget_options.h"
#include "fs/budget/tenant_report.h"
#include "fs/known/direct_io.h"
#include "fs/known/keepers.h"
#include "fs/known/lookup_counts.h"
#include "fs/known/use_table.h"
#include "fs/life/drop_history.h"
#include "fs/life/stage_counts.h"
#include "fs/names/read_times_options.h"
#include "fs/node/device_state.h"
#include "fs/node/listing_end.h"
#include "fs/node/ports.h"
#include "fs/pool/pool_counts.h"
#include "fs/pool/pool_options.h"
#include "fs/verify_mode.h"
#include "metadata/catalog.h"

namespace kvcachefs {

class PoolService;   // backend/pool/pool_service.h
struct Explanation;  // fs/explain/explain.h
struct EvictPage;    // fs/explain/evict.h
struct FlushPoint;   // fs/life/unsealed.h
struct Flush;        // fs/flush.h

namespace order {
class Learner;
}

// Who asks.
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
  mode_t umask = 0;
};

// What a lookup, and everything that makes a name, answers with.
struct Entry {
  InodeNumber inode = 0;
  std::uint32_t generation = 0;
  struct stat attributes {};
  double entry_timeout_s = 0;
  double attribute_timeout_s = 0;
};

struct AttributesReply {
  struct stat attributes {};
  timespec birth{};  // when the inode was made
  double timeout_s = 0;
};

// What a SETATTR asks for; absent fields stay. A time of `kTimeNow` is the present.
struct SetAttributes {
  std::optional<mode_t> mode;
  std::optional<uid_t> uid;
  std::optional<gid_t> gid;
  std::optional<std::uint64_t> size;
  std::optional<UnixNanos> atime;
  std::optional<UnixNanos> mtime;
  std::optional<UnixNanos> ctime;
  // The kernel asks to clear suid and sgid (a chown, or a truncate by somebody who may not keep
  // them).
  bool kill_suid_sgid = false;
};
inline constexpr UnixNanos kTimeNow = INT64_MIN;

// How an open file's bytes travel.
enum class ServeMode : std::uint8_t {
  kPassthrough,        // the kernel reads and writes the backing file
  kPassthroughDirect,  // mmap goes to the backing file, read and write come to the daemon
  kCached,             // the daemon fills the kernel's page cache
  kDirect,             // read and write come to the daemon, past the kernel's page cache
};

// An open file; owned by the volume from open() to release(). The FUSE file handle is its
// address.
class OpenFile;

// An open directory; owned by the volume from open_directory() to release_directory(). The FUSE
// file handle is its address.
class OpenDirectory;

struct OpenedDirectory {
  OpenDirectory* directory = nullptr;  // null: nothing is to be told of it
  bool remembers =
      false;  // the kernel may remember its names, and show those that it remembers
  bool is_unseen = false;  // it may do so without a READDIR
};

struct Opened {
  OpenFile* file = nullptr;
  ServeMode mode = ServeMode::kDirect;
  int backing_id = 0;        // of the two passthrough modes
  bool drops_pages = false;  // kCached: what the kernel has of it may be older than a write
  bool wants_flush = true;   // false: nothing can have been written, close needs no FLUSH
};

struct Created {
  Entry entry;
  Opened opened;
};

struct ListedEntry {
  DirEntry entry;
  std::optional<Entry> plus;  // readdirplus: absent of files
};

struct VolumeOptions {
  bool keep_by_default = false;  // --policy keep
  Keepers keepers = {};
  bool read_only = false;
  VerifyMode verify = VerifyMode::kOpen;
  std::uint64_t scrub_bytes_per_second = 0;  // 0: no scrub
  std::uint64_t stage_bytes = 0;             // most that is read ahead and not loaded; 0: none
  DirectIo direct_io = DirectIo::kPass;
  ReadTimesOptions read_times = {};
  // Between two checks of a device that is not well (fs/life/device_watch.h).
  std::chrono::milliseconds device_period{1000};
  // What the age of files is judged by.
  Clocks clocks = {};
  BudgetOptions budget = {};
  // Not started yet; outlives the volume. Null: none.
  PoolService* pool = nullptr;
  PoolOptions pool_options = {};
};

// What a flush waits for.
enum class FlushCost : std::uint8_t { kQuick, kWaitsForDisk, kWaitsForRoom };

// What an open waits for. kChanges: for nothing, as long as the disk of the state directory
// takes writes: it is recorded.
enum class OpenCost : std::uint8_t { kQuick, kChanges, kWaitsForDisk, kWaitsForPool };

// Whether an open verifies what it finds wanting.
enum class OpenCheck : std::uint8_t {
  kVerify,
  kSkip,  // open_cost() has just said that there is nothing to do
};

// Whether a lookup of what is not here asks the pool.
enum class AskPool : std::uint8_t { kYes, kNo };

// What recovery found and did at the start.
struct RecoveryReport {
  std::string
      kind;  // "new", "clean", "daemon" (it crashed), "machine" (it crashed, or was rebooted)
  std::uint64_t dropped = 0;
  double seconds = 0;
};

// Numbers for `status`.
struct VolumeCounts {
  std::uint64_t inodes_cached = 0;
  std::uint64_t open_files = 0;
  std::uint64_t unsealed = 0;
  std::uint64_t sealed_total = 0;
  std::uint64_t poisoned = 0;
  std::uint64_t damaged = 0;
  std::uint64_t lost = 0;
  std::uint64_t leases = 0;
  std::uint64_t leased_bytes = 0;
  std::uint64_t leases_ended_early = 0;
  std::uint64_t opens_refused = 0;       // their users had too much open
  std::uint64_t slowed = 0;              // closes that waited for room
  std::uint64_t orphan_bytes = 0;        // of processes that have ended
  std::uint64_t unreadable = 0;          // of those damaged: the device could not read them
  std::uint64_t changed_on_purpose = 0;  // sealed files that a user changed: sealed anew
  std::uint64_t verified_opens = 0;
  std::uint64_t verified_bytes = 0;  // by opens
  std::uint64_t scrubbed_bytes = 0;
  std::int64_t scrub_pass_end_s = 0;  // seconds since the epoch; 0: no pass has come to its end
  StageCounts staged;
  LookupCounts::Totals lookups;
  std::uint64_t evicted_plain = 0;  // files that were no blocks, for room
  // Copies of a prefix hash that was there already, and those among them of another size.
  std::uint64_t duplicates = 0;
  std::uint64_t duplicates_of_other_size = 0;
  std::uint64_t catalog_memory_bytes = 0;
  // Of the order of blocks.
  std::uint64_t blocks = 0;           // files that are
  std::uint64_t order_bytes = 0;      // of memory
  std::uint64_t order_dropped = 0;    // calls not learned from: too many names at once
  std::uint64_t invisible_calls = 0;  // of processes that this pid namespace does not show
  bool blocks_behind = false;         // names are being read anew, or the last run's order
};

class Volume {
 public:
  // Opens the namespace and recovers what the last run left (bounded by what was unsealed
  // then). Errors: EIO, EBADMSG, ENOSPC; `problem` says in a sentence what failed, on what, and
  // what to do. The ports must outlive the volume; `backing_ids` null: no passthrough.
  static Result<std::unique_ptr<Volume>> open(Catalog& catalog,
                                              std::vector<std::unique_ptr<Tier>> devices,
                                              const VolumeOptions& options,
                                              BackingIds* backing_ids,
                                              KernelNotifications* notifications,
                                              std::string& problem);
  ~Volume();

  // Starts the background threads (seal, reaper). stop() ends them: everything unsealed is
  // sealed if that takes no longer than `deadline_s`, and the clean marker is written when
  // nothing is left open. `closed`: the kernel has let go of the mount by itself, so that nobody
  // has anything open or mapped.
  void start();
  void stop(double deadline_s, bool closed = false);

  // ---- names (fs/names) ----
  // ENOENT: no such name, or its data is a miss, or it is a prefix hash that another process is
  // writing. "." and ".." are served for any inode number that exists.
  // `miss_timeout_s`, where given, becomes how long an ENOENT holds. *slow* when lookup_asks_pool() says so: it
  // waits for the pool, a quarter of a second at most.
  Result<Entry> lookup(InodeNumber parent, std::string_view name, const Caller& caller = {},
                       double* miss_timeout_s = nullptr, AskPool ask = AskPool::kYes);
  [[nodiscard]] bool lookup_asks_pool(InodeNumber parent, std::string_view name);
  // A directory that is made up when somebody looks: its lookups and listings are *slow*, for
  // they look at as many names as share a hash.
  [[nodiscard]] static bool is_made_up(InodeNumber directory) noexcept;
  void forget(InodeNumber inode, std::uint64_t lookups);
  // All types but symlinks; a regular file gets its (empty) object, published at once.
  Result<Entry> make_node(InodeNumber parent, std::string_view name, mode_t mode, dev_t rdev,
                          const Caller& caller);
  Result<Entry> make_symlink(InodeNumber parent, std::string_view name, std::string_view target,
                             const Caller& caller);
  Result<Entry> link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name,
                     const Caller& caller = {});
  // For who has asked already whether it waits_for_disk().
  Result<Entry> link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name,
                     const Caller& caller, bool waits);
  Result<void> unlink(InodeNumber parent, std::string_view name, const Caller& caller = {});
  // *slow* when rmdir_asks_pool() says so: a directory that others have filled on the pool is not empty. Where the pool
  // does not answer, what it has comes back with the next look.
  Result<void> rmdir(InodeNumber parent, std::string_view name, AskPool ask = AskPool::kYes);
  [[nodiscard]] bool rmdir_asks_pool(InodeNumber parent, std::string_view name);
  // `flags`: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT; others EINVAL. Onto a published prefix file: success,
  // and the file that was there stays (fs/names/native_map.h); EEXIST with flags, or of a symlink.
  Result<void> rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                      std::string_view new_name, unsigned flags, const Caller& caller = {});
  // *slow* when rename_asks_pool() says so: a directory moves where the pool has nothing in it, and is EXDEV otherwise.
  [[nodiscard]] bool rename_asks_pool(InodeNumber parent, std::string_view name);
  // For who has asked already whether it rename_waits_for_disk(), and does not ask the pool.
  Result<void> rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                      std::string_view new_name, unsigned flags, const Caller& caller,
                      bool waits);
  Result<std::string> read_link(InodeNumber inode);
  // Entries after the cookie, "." and ".." first (their cookies are 1 and 2). `visit` returns
  // false when its buffer is full; an entry with `plus` was counted as a lookup only if `visit`
  // returned true for it. *slow* when list_asks_pool() says so: a listing that begins (from 0) shows what is on
  // the pool, too, and waits for it, some seconds at most.
  Result<void> list(InodeNumber directory, std::uint64_t after_cookie, bool plus,
                    const std::function<bool(const ListedEntry&)>& visit,
                    const Caller& caller = {}, AskPool ask = AskPool::kYes);
  [[nodiscard]] bool list_asks_pool(InodeNumber directory, std::uint64_t after_cookie);
  // What the kernel may remember of a directory's names (fs/node/kernel_listings.h). Where it
  // may list them without a list(), the caller counts as one that lists directories.
  OpenedDirectory open_directory(InodeNumber directory, const Caller& caller);
  void release_directory(OpenDirectory& directory);  // `directory` is gone after it
  // Before a list() from this cookie. False: await_listing_begin() is to be called, too, which
  // is *slow*: it waits for the kernel, two seconds at most.
  bool begin_listing(OpenDirectory& directory, std::uint64_t after_cookie);
  void await_listing_begin(OpenDirectory& directory);
  // Before the answer to a list() that has found no names.
  ListingEnd end_listing(OpenDirectory& directory);
  // *slow* in the same way, kEmpty or kShort.
  ListingEnd await_listing_end(OpenDirectory& directory);
  // An fsync of the directory: the process that opened it did so for that, and not to list it.
  void synced_directory(OpenDirectory& directory);
  // The kernel has taken the message with this ticket (KernelNotifications::drop_listing()).
  void listing_dropped(InodeNumber directory, std::uint64_t ticket);

  // ---- attributes and xattrs ----
  // `file`, when the kernel names one: a file that came second to the file of its prefix hash has
  // attributes only for those that have it open.
  Result<AttributesReply> attributes(InodeNumber inode, const OpenFile* file = nullptr,
                                     const Caller& caller = {});
  Result<AttributesReply> set_attributes(InodeNumber inode, const SetAttributes& change,
                                         OpenFile* file, const Caller& caller);
  // Setting the attribute is *slow*: it looks for a block by its hash.
  [[nodiscard]] static bool xattr_waits(std::string_view name) noexcept;
  // `flags`: XATTR_CREATE, XATTR_REPLACE. An access ACL takes the set-group-ID bit away from who
  // is not in the file's group.
  Result<void> set_xattr(InodeNumber inode, std::string_view name, std::string_view value,
                         int flags, const Caller& caller);
  // ENODATA. What xattr_is_sought() is found out by a walk over its names.
  Result<std::string> get_xattr(InodeNumber inode, std::string_view name,
                                const Caller& caller = {});
  [[nodiscard]] static bool xattr_is_sought(std::string_view name) noexcept;
  // Names, each followed by a NUL, as listxattr(2) gives them: trusted.* only to CAP_SYS_ADMIN.
  Result<std::string> list_xattrs(InodeNumber inode, const Caller& caller);
  // ENODATA
  Result<void> remove_xattr(InodeNumber inode, std::string_view name, const Caller& caller);

  // ---- files ----
  // `flags` are of open(2); O_CREAT and O_EXCL are ignored here. O_TRUNC truncates (or starts a
  // new object). *slow* when open_cost() says so: then a sealed file's bytes are read and compared
  // with their checksums first (fs/life/verify.h), or those of a remote one are fetched from the pool
  // (fs/pool/pool_files.h). Errors: EEXIST (for writing, of a prefix file), ENOENT (the pool does not give them),
  // ESTALE (gone, or damaged and set aside: look the name up again, and find the miss).
  Result<Opened> open(InodeNumber inode, int flags, const Caller& caller,
                      OpenCheck check = OpenCheck::kVerify);
  // Error: kMustWait.
  [[nodiscard]] Result<OpenCost> open_cost(InodeNumber inode, int flags);
  Result<Created> create(InodeNumber parent, std::string_view name, mode_t mode, int flags,
                         const Caller& caller);
  Result<Created> make_tmpfile(InodeNumber parent, mode_t mode, int flags,
                               const Caller& caller);
  // Reads into `out`; less only at the end of the file. Only files opened in a mode that comes
  // to the daemon. Error: kMustWait, it is not in memory.
  // *slow* when read_waits() says so: it waits for the pool (fs/node/arriving.h). Error then: EIO.
  Result<std::size_t> read(OpenFile& file, std::span<std::byte> out, std::uint64_t offset);
  [[nodiscard]] bool read_waits(const OpenFile& file, std::size_t size,
                                std::uint64_t offset) const;
  // Disks are numbered from 0 on; for as long as the volume is open there are no others.
  [[nodiscard]] std::size_t disks() const noexcept;
  // That a file's bytes are on; nullopt: none. Error: kMustWait.
  [[nodiscard]] Result<std::optional<std::uint32_t>> disk_of(InodeNumber inode);
  [[nodiscard]] Result<std::optional<std::uint32_t>> disk_of(InodeNumber parent,
                                                             std::string_view name);
  [[nodiscard]] std::optional<std::uint32_t> disk_of(const OpenFile& file) const noexcept;
  // Whether it takes no writes, or gives nothing.
  [[nodiscard]] bool is_stuck(std::uint32_t disk) const noexcept;
  // A write of it is about to be refused: what is not published yet will not be. If its
  // application does not hear of that, not `is_seen`, what is published goes when it is closed.
  // Never waits.
  void refused_write(const OpenFile& file, bool is_seen) noexcept;
  // Of a copy: the one that does not answer, if one does not.
  [[nodiscard]] std::optional<std::uint32_t> disk_to_wait_for(
      const OpenFile& from, const OpenFile& to) const noexcept;
  // Writes all of `data`, or fails.
  Result<std::size_t> write(OpenFile& file, std::span<const std::byte> data,
                            std::uint64_t offset, const Caller& caller);
  // Publishes, unless it comes from another process than the one that opened the file: a child
  // that closes what it inherited. Under policy keep it waits for the disk
  // (see flush_cost).
  Result<void> flush(OpenFile& file, const Caller& caller);
  // Before its release: the flags that it has by now (fcntl(2), F_SETFL).
  static void had_flags(OpenFile& file, int last) noexcept;
  void release(OpenFile& file);  // `file` is gone after it
  // The same of a file that was open for reading alone. False: this thread refuses to wait, and
  // would have to, or the file was open for writing; nothing was done.
  [[nodiscard]] bool release_at_once(OpenFile& file);
  // Whoever asks for it needs the file again (policy `keep`), but an NFS server, which does so for each file. *slow*
  Result<void> fsync(OpenFile& file, bool data_only, const Caller& caller = {});
  Result<void> fsync_directory(InodeNumber directory);  // *slow*
  // An fsync waits for the pool, too, for as long as fs/pool/sync_on_pool.h says, which has the errors; on a thread for such.
  [[nodiscard]] bool syncs_on_pool() const noexcept;
  Result<void> sync_on_pool(InodeNumber number, std::chrono::steady_clock::time_point called,
                            const std::function<bool()>& gives_up);
  Result<void> fallocate(OpenFile& file, int mode, std::uint64_t offset, std::uint64_t length,
                         const Caller& caller);  // *slow*
  Result<std::uint64_t> seek(OpenFile& file, std::uint64_t offset,
                             int whence);  // SEEK_HOLE, SEEK_DATA
  // Error EXDEV: the bytes are still to come from the pool; who copies reads and writes instead.
  Result<std::uint64_t> copy_range(OpenFile& from, std::uint64_t from_offset, OpenFile& to,
                                   std::uint64_t to_offset, std::uint64_t length,
                                   const Caller& caller);  // *slow*
  // By what flush() of it should be preceded now: kWaitsForRoom: by wait_for_room(), on a thread that has
  // nothing else to do (it is *slow*, and what it makes wait is the writer alone).
  // `waits_for_room` false: of one that is not to wait for that.
  // Error: kMustWait.
  [[nodiscard]] Result<FlushCost> flush_cost(const OpenFile& file,
                                             bool waits_for_room = true) const;
  // Returns when the file's device has room again, when nothing more can be evicted, or two seconds after
  // `called`, when the writer called.
  void wait_for_room(const OpenFile& file, std::chrono::steady_clock::time_point called);
  // What gets a name whose policy is keep goes to the disk before the call ends: a link, and a rename.
  [[nodiscard]] bool waits_for_disk(InodeNumber new_parent, std::string_view new_name);
  [[nodiscard]] bool rename_waits_for_disk(InodeNumber parent, std::string_view name,
                                           InodeNumber new_parent, std::string_view new_name,
                                           unsigned flags);

  // Below a quota the room is the quota's. `inode`: of the path that was asked of.
  Result<struct statvfs> statfs(InodeNumber inode = kRootInode);
  // Of the scrub, in bytes a second; 0: it rests. Any thread.
  void set_scrub_rate(std::uint64_t bytes_per_second);

  // ---- for who asks (fs/explain) ----
  // Of a path relative to the root. Errors: EINVAL (a name of .kvcachefs), EIO, EBADMSG, ESTALE (it
  // changed meanwhile: ask again).
  Result<Explanation> explain(std::string_view path);
  // Drops a file that may go; of a directory it says only that it is one. Errors: as above, ENOENT,
  // EROFS.
  Result<EvictPage> evict(std::string_view path);
  // Drops the files in a directory that may go, those after `after`. Errors: as above.
  Result<EvictPage> evict_in(InodeNumber directory, std::uint64_t after);

  // Counts the files at a path (of a directory: below it) that are not on the disk yet, and what is not on the pool yet, and
  // has both done soon. `since`: of the answer before, empty at the first look. Errors: EIO, EBADMSG.
  Result<Flush> flush(std::string_view path, const FlushPoint& since);

  // ---- for status ----
  // Counts the lookups that are pending, and waits up to LookupCounts::kPending for those that came just now.
  [[nodiscard]] VolumeCounts counts() const;
  // It has joined its pool, and that answers.
  [[nodiscard]] bool is_pool_up() const;
  // nullopt: there is no pool.
  [[nodiscard]] std::optional<PoolCounts> pool_counts() const;
  // How much the blocks of each model were used since the start, and how much was dropped why.
  [[nodiscard]] std::vector<Use> uses() const;
  [[nodiscard]] DropCounts drop_counts() const;
  [[nodiscard]] std::vector<TenantReport> tenants() const;
  [[nodiscard]] const RecoveryReport& recovery() const noexcept;
  [[nodiscard]] const std::vector<std::unique_ptr<Tier>>& devices() const noexcept;
  // Of the device at that place in devices(); nullopt: they are being counted.
  [[nodiscard]] std::optional<std::uint64_t> objects_on(std::size_t device) const;
  // What occupies the device at that place in devices(), and the room left, as of the last look.
  [[nodiscard]] DeviceRoom room_on(std::size_t device) const;
  [[nodiscard]] DeviceState device_state(std::size_t device) const;
  // For how long the device at that place in devices() has taken no write that gave no error
  // either, if that is a second or more, in seconds; else 0. Those of the state directory's
  // disk, and of any of all.
  [[nodiscard]] double stalled_seconds(std::size_t device) const;
  // The same of what it was asked for.
  [[nodiscard]] double silent_seconds(std::size_t device) const;
  [[nodiscard]] double state_stalled_seconds() const;
  [[nodiscard]] bool is_stalled() const;
  // What is known of the order of blocks.
  [[nodiscard]] const order::Learner& order() const noexcept;

 private:
  struct Parts;
  explicit Volume(std::unique_ptr<Parts> parts);
  // Of what stands there, if anything does.
  Result<void> keep_safe(InodeNumber parent, std::string_view name);
  std::optional<InodeNumber> asks_before_removal(InodeNumber parent, std::string_view name);
  [[nodiscard]] bool stages_in_now(const Caller& caller) const;
  std::unique_ptr<Parts> parts_;
};

// How long the kernel may believe that there is no such name (seconds), but of blocks, once it was asked
// for often (LookupCounts::kOften). Before that not at all.
inline constexpr double kNegativeTimeout = 5.0;

}  // namespace kvcachefs
