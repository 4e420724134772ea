// The catalog: what exists. Typed access to the store: dentries, inodes, objects, back
// references, xattrs, orphans, the list of unsealed inodes, blocks of KV cache and the prefix
// hashes in names, and the mount's own facts.
//
// Any thread may call any method. No method waits for another user's action; all are calls into
// the local database (microseconds, or a disk read). Concurrent commits of the SAME record are
// ordered by the caller (the inode's lock).
//
// Errors of every method: EIO (the database failed; logged once), EBADMSG (a record that does
// not decode: damaged), kMustWait (commit only, backend/base/must_wait.h), ENOSPC (commit and
// sync only: the disk of the state directory is full).
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/base/result.h"
#include "backend/base/stall_watch.h"
#include "metadata/dentry_cache.h"
#include "metadata/floors.h"
#include "metadata/object_count.h"
#include "metadata/record.h"
#include "metadata/store.h"

namespace kvcachefs {

using DeviceUuid = std::array<std::uint8_t, 16>;
inline constexpr std::uint32_t kNoDevice = UINT32_MAX;

// The name that a file had last, and the prefix hash of its block: its rows in the tables of blocks and
// prefixes, unless a later file of the name has made them its own.
struct LeftRows {
  InodeNumber parent = 0;
  std::string name;
  std::string hash;  // empty: none
  bool operator==(const LeftRows&) const = default;
};

// Changes that become visible, and survive a crash, together.
class Edit {
 public:
  void put_inode(InodeNumber number, const InodeRecord& record);
  void remove_inode(InodeNumber number);
  // Writes the dentry, its place in the directory's listing, and the inode's back reference.
  void put_dentry(InodeNumber parent, std::string_view name, const DentryRecord& record);
  // `record` is the one that stands there.
  void remove_dentry(InodeNumber parent, std::string_view name, const DentryRecord& record);
  // One that is new, and another record of one that is there.
  void make_object(ObjectId id, const ObjectRecord& record);
  void put_object(ObjectId id, const ObjectRecord& record);
  // `device`: of its record; kNoDevice: not known.
  void remove_object(ObjectId id, std::uint32_t device);
  void put_xattr(InodeNumber inode, std::string_view name, std::string_view value);
  void remove_xattr(InodeNumber inode, std::string_view name);
  // An inode without a name whose file may be open: removed by the reaper, or at the next
  // start.
  void put_orphan_inode(InodeNumber number);
  // The same of one whose rows of a block stand until it is removed.
  void put_orphan_inode(InodeNumber number, const LeftRows& left);
  void remove_orphan_inode(InodeNumber number);
  // A backing file that no inode needs any more: unlinked by the reaper, or at the next start.
  void put_orphan_object(ObjectId id, std::uint32_t device);
  void remove_orphan_object(ObjectId id);
  // The inodes whose data is not sealed: what recovery looks at, so that a start needs no scan
  // of all names.
  // A name that holds a block of KV cache, under its number in fs/order; and where a prefix hash
  // stands in a name. Both follow from the names: they can be made anew from them.
  void put_block(std::uint64_t block, const BlockRecord& record);
  void remove_block(std::uint64_t block);
  void put_prefix(std::string_view hash, InodeNumber parent, std::string_view name);
  void remove_prefix(std::string_view hash, InodeNumber parent, std::string_view name);
  // Names below this directory are to be read for blocks and prefixes.
  void put_unread(InodeNumber directory);
  void remove_unread(InodeNumber directory);
  // Some directory was told a layout.
  void put_told();
  // Some directory was told a policy or a time to live.
  void put_told_policy();
  void put_unsealed(InodeNumber number);
  void remove_unsealed(InodeNumber number);
  // Where a file or a directory stands on the pool. One that stands is removed before another is put.
  void put_pool_copy(InodeNumber number, const PoolCopy& copy);
  // `copy` is the one that stands there.
  void remove_pool_copy(InodeNumber number, const PoolCopy& copy);
  // A sealed file that is to be published on the pool, and its size.
  void put_to_publish(InodeNumber number, std::uint64_t size);
  void remove_to_publish(InodeNumber number);
  // A path that is to be taken away on the pool; another tombstone of it is replaced.
  void put_tombstone(std::string_view path, const Tombstone& tombstone);
  void remove_tombstone(std::string_view path);
  // Whose a path is on the pool, from now on; another change of it is replaced.
  void put_owner_change(std::string_view path, const OwnerChange& change);
  void remove_owner_change(std::string_view path);

  // What it removes frees more than it adds: it goes through on a full disk.
  void set_frees() noexcept { batch_.set_frees(); }
  [[nodiscard]] bool empty() const noexcept { return batch_.empty(); }

 private:
  friend class Catalog;
  WriteBatch batch_;
  std::vector<ObjectPlace> made_;
  std::vector<ObjectPlace> removed_;
};

// A name that a prefix hash stands in.
struct PrefixName {
  std::string hash;
  InodeNumber parent;
  std::string name;
  bool operator==(const PrefixName&) const = default;
};

// What the last run left, for recovery.
struct RunMarker {
  bool clean = false;  // that run ended by itself, everything recorded
  // The kernel had let go of the mount by then, and so it had when each run before it ended that
  // had objects with ids from here on: nobody can have changed a sealed one since, but below the
  // mount. nullopt: it had not.
  std::optional<ObjectId> closed_from = std::nullopt;
  std::string boot_id;  // of the machine in that run
  std::string
      mount_ids;  // of the devices' backing filesystems in that run, as the caller encodes them
};

// The machine went down with the database in use: what was written shortly before may be lost, of records and of
// files, each by itself.
struct MachineCut {
  ObjectId before = 0;  // objects that there were have ids below this
  UnixNanos ended = 0;  // the first start since: what is of a later time is not of then
};

// How far the wall clock was ahead of the mount's own time, for objects with ids from `first` on.
struct ClockSpan {
  std::uint64_t first = 0;
  std::int64_t ahead = 0;  // ns
  bool operator==(const ClockSpan&) const = default;
};

// The mount's own time (fs/known/own_time.h), as it was some seconds ago.
struct ClockRecord {
  static constexpr std::size_t kMostSpans = 64;

  std::int64_t now = 0;               // ns since 1970, by the mount
  std::int64_t monotonic = 0;         // by the machine, then; ns
  std::string boot_id;                // of the machine
  std::vector<ClockSpan> spans = {};  // kMostSpans at most, from the oldest on
  bool operator==(const ClockRecord&) const = default;
};

// `size`: when it was asked for; 0 may also be that nobody knew.
struct QueuedFile {
  InodeNumber number;
  std::uint64_t size;
};

struct OrphanObject {
  ObjectId id;
  std::uint32_t device;
};

class Catalog {
 public:
  // Takes over an opened store; makes a new database's first records (root directory is made by
  // the caller). `problem`, when given, becomes a line for a person that says what is wrong and
  // what to do; the log has it too. Errors: EPROTONOSUPPORT (written by a newer version, or not
  // ours), EBADMSG (its own facts do not read).
  static Result<std::unique_ptr<Catalog>> create(std::unique_ptr<Store> store,
                                                 std::string* problem = nullptr);
  ~Catalog();

  // nullopt: there is none.
  Result<std::optional<DentryRecord>> find_dentry(InodeNumber parent, std::string_view name);
  Result<std::optional<InodeRecord>> find_inode(InodeNumber number);
  Result<std::optional<ObjectRecord>> find_object(ObjectId id);
  // In the order of their ids, those greater than `after`; one that does not decode is passed over.
  Result<std::vector<ObjectPlace>> list_objects(ObjectId after, std::size_t limit);
  // Of the objects on each device, from these commits; who begins it must walk the table, too.
  ObjectCount& object_count() noexcept { return object_count_; }
  Result<std::optional<std::string>> find_xattr(InodeNumber inode, std::string_view name);
  Result<std::vector<std::string>> list_xattrs(InodeNumber inode);
  // Their names and the lengths of their values, until `visit` returns false.
  using VisitXattr = std::function<bool(std::string_view name, std::size_t value_bytes)>;
  Result<void> each_xattr(InodeNumber inode, const VisitXattr& visit);
  // Up to `limit` entries with a cookie greater than `after`, in cookie order. Holds no more
  // than that in memory.
  Result<std::vector<DirEntry>> list_directory(InodeNumber parent, std::uint64_t after,
                                               std::size_t limit);
  Result<bool> directory_empty(InodeNumber parent);
  // Up to `limit` (parent, name) pairs of the inode.
  Result<std::vector<std::pair<InodeNumber, std::string>>> list_links(InodeNumber inode,
                                                                      std::size_t limit);
  // In number order, those greater than `after`.
  Result<std::vector<InodeNumber>> list_unsealed(InodeNumber after, std::size_t limit);
  [[nodiscard]] Result<bool> is_listed_unsealed(InodeNumber number);
  // In number order, those greater than `after`.
  Result<std::vector<InodeNumber>> list_orphan_inodes(InodeNumber after, std::size_t limit);
  // What an orphan has left; nullopt: nothing, or it is no orphan.
  Result<std::optional<LeftRows>> find_left_rows(InodeNumber number);
  Result<std::vector<OrphanObject>> list_orphan_objects(ObjectId after, std::size_t limit);
  Result<std::optional<BlockRecord>> find_block(std::uint64_t block);
  Result<std::optional<PoolCopy>> find_pool_copy(InodeNumber number);
  // Inodes with one, in number order, those greater than `after`.
  Result<std::vector<InodeNumber>> list_pool_copies(InodeNumber after, std::size_t limit);
  // Up to `limit` inodes whose copy the server has under that number.
  Result<std::vector<InodeNumber>> list_by_fileid(std::uint64_t fileid, std::size_t limit);
  // In number order, those greater than `after`.
  Result<std::vector<InodeNumber>> list_to_publish(InodeNumber after, std::size_t limit);
  Result<std::vector<QueuedFile>> list_queued(InodeNumber after, std::size_t limit);
  Result<bool> is_to_publish(InodeNumber number);
  Result<std::optional<Tombstone>> find_tombstone(std::string_view path);
  // In the order of their paths, those after `after`.
  Result<std::vector<std::pair<std::string, Tombstone>>> list_tombstones(std::string_view after,
                                                                         std::size_t limit);
  Result<std::optional<OwnerChange>> find_owner_change(std::string_view path);
  Result<std::vector<std::pair<std::string, OwnerChange>>> list_owner_changes(
      std::string_view after, std::size_t limit);
  // In the order of their numbers, those greater than `after` (nullopt: all).
  Result<void> each_block(const std::optional<std::uint64_t>& after,
                          const std::function<bool(std::uint64_t, const BlockRecord&)>& visit,
                          const std::function<void(const std::string& what)>& damaged);
  // Names of the hash, after `after` where given (one of this hash): in the order of directory
  // and name.
  Result<std::vector<PrefixName>> list_prefix(std::string_view hash,
                                              const std::optional<PrefixName>& after,
                                              std::size_t limit);
  // The first hash that is no less than `from`, of a name in a directory that `takes` where given;
  // nullopt: there is none. `takes` is asked for each row, and may ask the catalog. Errors: also
  // those of `takes`.
  Result<std::optional<std::string>> find_prefix(
      std::string_view from,
      const std::function<Result<bool>(InodeNumber directory)>& takes = {});
  // The first that is greater.
  Result<std::optional<std::string>> next_prefix(
      std::string_view after,
      const std::function<Result<bool>(InodeNumber directory)>& takes = {});
  // In number order, those greater than `after`.
  Result<std::vector<InodeNumber>> list_unread(InodeNumber after, std::size_t limit);
  // Whether any directory ever was told a layout.
  [[nodiscard]] bool is_told() const noexcept { return told_.load(std::memory_order_relaxed); }
  // Whether any ever was told a policy or a time to live.
  [[nodiscard]] bool is_told_policy() const noexcept {
    return told_policy_.load(std::memory_order_relaxed);
  }
  // Whole-table walks for fsck. The callback returns false to end. A record that does not
  // decode is passed to `damaged` (key text) and skipped.
  using Damaged = std::function<void(const std::string& what)>;
  Result<void> each_inode(const std::function<bool(InodeNumber, const InodeRecord&)>& visit,
                          const Damaged& damaged);
  Result<void> each_dentry(const std::function<bool(InodeNumber parent, const std::string& name,
                                                    const DentryRecord&)>& visit,
                           const Damaged& damaged);
  Result<void> each_listing(
      const std::function<bool(InodeNumber parent, const DirEntry&)>& visit,
      const Damaged& damaged);
  Result<void> each_back_reference(
      const std::function<bool(InodeNumber inode, InodeNumber parent, const std::string& name)>&
          visit);
  Result<void> each_object(const std::function<bool(ObjectId, const ObjectRecord&)>& visit,
                           const Damaged& damaged);
  Result<void> each_xattr_owner(const std::function<bool(InodeNumber)>& visit);

  // Written to the operating system before it returns: survives a crash of the daemon, not one
  // of the machine until the next sync().
  Result<void> commit(Edit&& edit);
  // Makes every commit that has returned survive a crash of the machine. Calls that come
  // together share one fsync. Waits for the disk.
  Result<void> sync();

  // A number or id never given before, also after a crash. Inode numbers, object ids and
  // cookies share one sequence. Waits for the disk once in 65,536 calls, when the next block of
  // them is reserved.
  Result<std::uint64_t> next_id();
  // The next number or id, which nothing has yet.
  [[nodiscard]] std::uint64_t coming_id() const noexcept { return next_id_.load(); }
  // The range that an unclean last run may have given ids from without a record: [first, last).
  // For the collection of stray backing files at the start.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> last_run_ids() const noexcept;

  // The table of devices: UUID by index, in the order of adding.
  Result<std::vector<DeviceUuid>> devices();
  // The index of a device, which is new or known. Synced before it returns.
  Result<std::uint32_t> add_device(const DeviceUuid& uuid);

  // As the last run left it; not clean and without a boot id in a new database.
  Result<RunMarker> run_marker();
  // Synced before it returns.
  Result<void> set_run_marker(const RunMarker& marker);
  // The last one, as long as its objects were not all looked at; nullopt: there is none.
  Result<std::optional<MachineCut>> machine_cut();
  // Synced before it returns.
  Result<void> set_machine_cut(const MachineCut& cut);
  // Not synced: it would be looked at once more.
  Result<void> forget_machine_cut();
  // nullopt: no run has written one. Errors: EBADMSG (it does not read), EIO.
  Result<std::optional<ClockRecord>> clock();
  Result<void> set_clock(const ClockRecord& record);
  // This database's own UUID, written at its creation; device directories name it.
  Result<DeviceUuid> uuid();
  // The pool that this database's copies are on; nullopt: it never joined one.
  Result<std::optional<DeviceUuid>> pool();
  // Synced before it returns.
  Result<void> set_pool(const DeviceUuid& uuid);
  // Bytes that a device's sealed files occupied when somebody last said so; nullopt: nobody did. A hint:
  // not synced.
  Result<std::optional<std::uint64_t>> sealed_bytes(std::uint32_t device);
  Result<void> set_sealed_bytes(std::uint32_t device, std::uint64_t bytes);
  // Bytes by user of something that is counted, as when somebody last said so; none: nobody
  // did. A hint: not synced.
  using BytesByUser = std::vector<std::pair<std::uint32_t, std::uint64_t>>;
  Result<BytesByUser> metadata_bytes();
  Result<void> set_metadata_bytes(const BytesByUser& users);
  // Bytes of memory that the database's caches and tables use now.
  [[nodiscard]] std::uint64_t memory_bytes() const;
  [[nodiscard]] std::uint64_t disk_bytes() const { return store_->disk_bytes(); }

  // For how long its disk has taken no write, if that is a second or more
  // (StallWatch::stalled()), in nanoseconds; else 0.
  [[nodiscard]] std::int64_t stalled() const noexcept { return stalls_.stalled(0); }

 private:
  explicit Catalog(std::unique_ptr<Store> store);
  Result<void> load(std::string* problem);
  Result<void> write(const WriteBatch& batch) {
    const StallWatch::Wait wait(stalls_, 0);
    return store_->write(batch);
  }
  Result<void> reserve_ids();
  Result<void> replace_fact(std::string_view key, std::string value);
  Result<void> scan_lettered(
      Table table, char kind, std::uint64_t after, std::size_t limit,
      const std::function<void(std::uint64_t number, std::string_view value)>& visit);
  Result<void> walk(
      std::uint64_t owner, Table table, const std::string& prefix, std::uint64_t from,
      const std::function<bool(std::string_view key, std::string_view value)>& visit);

  std::unique_ptr<Store> store_;
  Floors floors_;
  DentryCache dentries_;
  ObjectCount object_count_;
  std::atomic<bool> told_{false};
  std::atomic<bool> told_policy_{false};
  std::mutex devices_mutex_;
  StallWatch stalls_;  // of one disk, 0
  std::mutex ids_mutex_;
  std::atomic<std::uint64_t> next_id_{0};  // given under ids_mutex_
  std::uint64_t reserved_until_ = 0;
  std::pair<std::uint64_t, std::uint64_t> last_run_ids_{0, 0};
};

// The value of a row of the listings' table, whose key ends in `cookie`; for fsck. Error:
// EBADMSG.
Result<DirEntry> decode_listing(std::uint64_t cookie, std::string_view value);
// The value of an orphan inode's row, for fsck. nullopt: it has left nothing. Error: EBADMSG.
Result<std::optional<LeftRows>> decode_left_rows(std::string_view value);

}  // namespace kvcachefs
