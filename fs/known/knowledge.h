// What the filesystem knows of KV cache beyond bytes: which names are blocks, which prefix hash each
// shows, and in which order blocks belong (fs/order). One for a mount.
//
// It is told of calls as they come (a lookup, a create, …), and adds the rows of blocks and prefixes
// to the commits that make and remove names, so that these tables are never behind the names. What
// changes the meaning of many names at once (a directory renamed, or told another layout) is noted
// in the same commit and read anew later, by BlockKeeper.
//
// Any thread. Nothing here waits for a disk's write-back. Nothing of it is on the path of a read or
// write; a name that cannot be a block's costs some 50 ns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/clock.h"
#include "fs/known/crawlers.h"
#include "fs/known/file_policy.h"
#include "fs/known/find_blocks.h"
#include "fs/known/keepers.h"
#include "fs/known/lookup_counts.h"
#include "fs/known/order_feed.h"
#include "fs/known/own_time.h"
#include "fs/known/place.h"
#include "fs/known/processes.h"
#include "fs/known/tenants.h"
#include "fs/known/use_table.h"
#include "fs/known/writers.h"
#include "fs/order/learner.h"

namespace kvcachefs {

// A name that is, or will become, that of a block.
struct BlockName {
  // Of the final name; 0: a temporary that does not tell what it becomes.
  std::uint64_t number = 0;
  bool temporary = false;
  std::string hash;  // as the name shows it; empty: none
  UseTable::Series series = UseTable::kOther;
  TenantSlot tenant = 0;
};

// What a name was taken for, and when: places change.
struct NameLook {
  std::optional<BlockName> block;
  // A directory that is made with its first block. While it is not there, a lookup of the block ends at it: so
  // it stands for the block until that is stored (became()).
  std::optional<BlockName> fan_out;
  bool is_directory_of_block = false;  // a `fan_out` of NameKind::kDirectory
  bool is_companion = false;           // a name that belongs to blocks and is none
  std::uint64_t age = 0;               // of Places
  TenantSlot tenant = 0;
  bool is_kept = false;  // Knowledge::is_kept_at()
  // The directory lies far below what is known, and this thread refuses to wait: nothing is
  // known of the name.
  bool must_wait = false;
};

class Knowledge {
 public:
  // Held from before the commit that gives directories other paths or layouts until after it: the rows
  // of the names below are behind until BlockKeeper has read them anew.
  class PlaceChange {
   public:
    explicit PlaceChange(Knowledge& knowledge);
    ~PlaceChange();
    PlaceChange(const PlaceChange&) = delete;
    PlaceChange& operator=(const PlaceChange&) = delete;

   private:
    Knowledge& knowledge_;
  };

  // `otherwise`: of files of which nobody says anything.
  Knowledge(Catalog& catalog, InodeTable& table, FilePolicy otherwise = FilePolicy::kCache,
            Clocks clocks = {}, Keepers keepers = {});

  // Without a block: no block's name. A failing database makes names unknown, and is logged by itself.
  // Not under an inode's lock.
  // `owner`: as of is_kept_at().
  NameLook look(InodeNumber directory, std::string_view name, std::uint32_t owner = 0);
  std::optional<BlockName> block_of(InodeNumber directory, std::string_view name) {
    return look(directory, name).block;
  }

  // ---- in the commit of a name; the caller holds the lock of the inode it leads to ----

  // After put_dentry() of a regular file, with the directory's lock held as well. `seen`: look() at the
  // name, before the locks.
  void put_rows(Edit& edit, InodeNumber directory, std::string_view name, InodeNumber inode,
                const NameLook& seen);
  // Beside remove_dentry(); `seen`: look() at the name, before the lock. The number of the block that
  // goes, 0: it was none. Errors: EIO, EBADMSG.
  Result<std::uint64_t> remove_rows(Edit& edit, InodeNumber directory, std::string_view name,
                                    const NameLook& seen);
  // The same when the inode goes with the name: its rows stand until the reaper removes it, and lead
  // nowhere (remove_rows_left()). A commit with fewer rows is much of the cost of an unlink.
  Result<std::uint64_t> leave_rows(Edit& edit, InodeNumber inode, InodeNumber directory,
                                   std::string_view name, const NameLook& seen);
  // Of inodes that leave_rows() was called for: commits of their own. Not under an inode's lock.
  Result<void> remove_rows_left(const std::vector<InodeNumber>& inodes);
  // The same by the rows that are there, whatever the name is taken for now.
  Result<std::uint64_t> remove_rows_found(Edit& edit, InodeNumber directory,
                                          std::string_view name);
  // A directory that is renamed, or told a layout (or no longer); within a PlaceChange, with
  // its lock held.
  static void put_unread(Edit& edit, Inode& directory) {
    directory.times_unread.fetch_add(1, std::memory_order_relaxed);
    edit.put_unread(directory.number);
  }

  // ---- after the commit: what happened, and by whom. Noted; the learner is told a moment later ----

  void looked_up(const BlockName& block, pid_t thread, bool hit);
  // The first block is made in a directory whose absence lookups have met: `absent` is what they were taken for.
  void became(std::uint64_t absent, std::uint64_t block);
  void store_began(std::uint64_t block, pid_t thread);
  void stored(std::uint64_t block);
  // The blocks among the inode's names are this tenant's from now on. Not under an inode's lock. Errors:
  // EIO, EBADMSG.
  Result<void> grouped(InodeNumber inode, TenantSlot tenant);
  // A file got the final name of a block, by a rename or a link: stored(), and the store began just
  // now if it was not known before what is stored.
  void named(Inode& inode, std::uint64_t block, pid_t thread);
  // stored(), if the inode was made under its final name and this is its first publication.
  void store_done(Inode& inode);
  // Opened for reading: so many bytes.
  void loaded(const Inode& inode, std::uint64_t size, pid_t thread);
  void removed(std::uint64_t block);
  // A directory is being read: what this process looks up next it does not want.
  void listed(pid_t thread);
  // A directory is opened that this process may list unseen (fs/known/crawlers.h), and what
  // became of that.
  Crawlers::Opening opened_directory(pid_t thread);
  void closed_directory(const Crawlers::Opening& opening);
  void synced_directory(const Crawlers::Opening& opening);

  // ---- what is told: user.kvcachefs.parent ----

  // The prefix hash of the block before this inode's. Errors: ENODATA (it is no block, or none is
  // known before it), EIO, EBADMSG.
  Result<std::string> parent_hash(InodeNumber inode, const MayEnter& may_enter = {});
  // Errors: EINVAL (no hash; or the parent follows this block already), ENODATA (the inode is
  // no block, or no block of that hash is here, in a directory that may be entered, of the same
  // model, rank, group and part), EIO, EBADMSG.
  Result<void> set_parent_hash(InodeNumber inode, std::string_view hash,
                               const MayEnter& may_enter = {});
  // Takes back what was told, or learned: it is learned anew. Errors: as parent_hash().
  Result<void> forget_parent(InodeNumber inode);
  // An inode got this name by a link. In session/<id>/<n> it follows entry n-1, and is followed by n+1,
  // where these are there; elsewhere the name says nothing.
  void linked(InodeNumber directory, std::string_view name, InodeNumber inode);

  // ---- what may be done with a file (fs/known/file_policy.h) ----

  // Whether a file must not be lost, so that its close, rename and link wait for the disk: by the mount's policy, or by what a
  // name says, or its directory, without what files themselves are told. Not known just now: no.
  // `owner`: the file's; that of all that is told holds for root.
  // Whether a name may be made there, or a directory that makes the tree deeper. Errors:
  // ENAMETOOLONG, it lies too deep (kMostDepth); as Places::at().
  Result<void> check_depth(InodeNumber directory, bool is_deeper);
  bool is_kept_at(InodeNumber directory, std::string_view name, std::uint32_t owner = 0);
  // The same of a file, by all it was told. That it was fsynced does not count. As treatment().
  bool is_told_to_keep(InodeNumber inode, const InodeRecord& record);
  // Of its treatment.
  [[nodiscard]] bool is_told_to_keep(const Treatment& treatment) const noexcept;

  // Of its first 64 names. `record`: the inode's. `is_block`: what is_block() would say is wanted, too. Not under an
  // inode's lock; some ten microseconds, most of them for its names. Errors: EIO, EBADMSG, ESTALE (its names changed
  // meanwhile: ask later).
  Result<Treatment> treatment(InodeNumber inode, const InodeRecord& record,
                              bool* is_block = nullptr);
  // Changes when files or directories are told something: what treatment() said before may not hold.
  [[nodiscard]] std::uint64_t treatments_age() const noexcept { return told_age_.load(); }
  void told() noexcept { told_age_.fetch_add(1); }
  // The shortest time to live that treatment() has found so far; nullopt: none.
  [[nodiscard]] std::optional<std::chrono::seconds> shortest_ttl() const noexcept;
  // Set once before the mount answers: it is shorter than before. Queues and returns.
  std::function<void()> on_shorter_ttl;
  // The policy and ttl that a directory and those above were told, for files of that owner.
  // Errors: as above.
  Result<Told> told_above(InodeNumber directory, std::uint32_t owner);

  // What the nearest directory was told, from this one up. Errors: as above.
  Result<std::optional<DirectIo>> direct_io(InodeNumber directory);
  // The same of what goes to the pool.
  Result<std::optional<PoolWrites>> pool_writes(InodeNumber directory);

  // When a block was used last, to 10 ms; 0: it is not stored.
  UnixNanos last_use(std::uint64_t block);
  // By model, since the start.
  [[nodiscard]] const UseTable& uses() const noexcept { return uses_; }
  // ---- the hit ratio (fs/known/lookup_counts.h); `seen`: look() at the name. Temporaries, companions and what
  // crawlers look up do not count ----

  [[nodiscard]] LookupCounts& lookups() noexcept { return lookups_; }
  void found(InodeNumber directory, std::string_view name, const NameLook& seen, pid_t thread);
  // Returns whether the kernel may remember that there is no such name.
  bool missed(InodeNumber directory, std::string_view name, const NameLook& seen, pid_t thread);
  // A call begins that gives the name to a file, or takes it from one.
  void making_file(InodeNumber directory, std::string_view name, const NameLook& seen,
                   pid_t thread);
  Unfound making_directory(InodeNumber directory, std::string_view name, const NameLook& seen,
                           pid_t thread);
  // A file got the name. The first one in a directory that had been missing says whose the lookups
  // were that ended there.
  void got_file(Inode& directory, std::string_view name, const NameLook& seen);
  // A file was opened to be written alone, or truncated.
  void rewritten(const Inode& inode, pid_t thread);

  // Goes on from where the last run was; before anything is asked for the time. Errors: EIO.
  Result<void> begin_time();
  // Writes what the next run goes on from, if that is due or the wall clock was set; once a minute, and at the end. It is
  // due when there are uses since: an idle mount writes nothing. Errors: EIO.
  Result<void> keep_time(bool is_due);
  // The mount's own time: that of the learner, and of all ages of files.
  [[nodiscard]] std::int64_t now() const noexcept { return time_.now(); }
  [[nodiscard]] const OwnTime& time() const noexcept { return time_; }
  // Once it has been told all that has happened so far.
  order::Learner& learner() {
    feed_.settle();
    return learner_;
  }
  // The same without waiting for what is needed: the learner knows all that has happened so far.
  void settle() { feed_.settle(); }
  // Whether one of the inode's names is a block's, which is stored then, if the learner has not heard of it yet.
  // `likely`: the one that it probably is, 0: not known.
  bool is_stored_block(InodeNumber inode, std::uint64_t likely);
  // Whether one of the inode's names is a block's. Two or three reads of the database.
  [[nodiscard]] bool is_block(InodeNumber inode) { return number_of(inode).ok(); }
  // Whether the process lists directories: its lookups are no uses.
  [[nodiscard]] bool is_crawling(pid_t thread);
  // It calls for other machines (fs/known/nfs_server.h).
  [[nodiscard]] bool serves_nfs(pid_t thread);
  // From when the mount answers on; before and afterwards the learner is told at once.
  void start() { feed_.start(); }
  void stop() { feed_.stop(); }
  Places& places() noexcept { return places_; }
  // The process of a thread that calls; none: it is not visible here.
  ProcessId writer_of(pid_t thread);
  Writers& writers() noexcept { return writers_; }
  Tenants& tenants() noexcept { return tenants_; }
  [[nodiscard]] const Tenants& tenants() const noexcept { return tenants_; }
  // Set once before the mount answers: there are names to read anew. Queues and returns.
  std::function<void()> on_unread;
  // Whether names are to be read anew: set by who reads them.
  void set_behind(bool behind) noexcept { behind_.store(behind); }
  [[nodiscard]] bool is_behind() const noexcept { return behind_.load(); }
  // Whether a PlaceChange is under way. To be asked before the age of the places, which it changes
  // before it ends.
  [[nodiscard]] bool is_changing() const noexcept { return changing_.load() != 0; }
  // Directories in which names were made that had been looked at before such a change: their own names
  // are to be read anew, once their locks are free.
  [[nodiscard]] std::vector<InodeNumber> take_late();
  void add_late(InodeNumber directory);
  // Whether the learner has heard of anything since this was asked last.
  bool take_heard() noexcept { return heard_.exchange(false, std::memory_order_relaxed); }
  // Calls of processes that this pid namespace does not show.
  [[nodiscard]] std::uint64_t invisible_calls() const noexcept {
    return invisible_.load(std::memory_order_relaxed);
  }

 private:
  // --policy keep: whatever else is told.
  [[nodiscard]] bool keeps_all() const noexcept { return otherwise_ >= FilePolicy::kKeep; }
  [[nodiscard]] bool is_kept_there(const Place& place, const std::optional<Recognized>& file,
                                   std::uint32_t owner) const noexcept;
  using LeftByInode = std::pair<InodeNumber, LeftRows>;
  Result<void> remove_rows_in(InodeNumber directory, std::span<const LeftByInode> left);
  void note(order::Note::What what, std::uint64_t block, pid_t thread);
  order::Caller asker_of(const AskedName& name, pid_t thread);
  void note_group(std::uint64_t block, TenantSlot tenant);
  // Whether the rows of a name are those of what it was taken for then.
  [[nodiscard]] bool is_settled(const NameLook& seen) const noexcept {
    return holds(seen) && !behind_.load();
  }
  // Whether it would be taken for the same now.
  [[nodiscard]] bool holds(const NameLook& seen) const noexcept {
    return !is_changing() && seen.age == places_.age();
  }
  // Says what becomes of a file of policy kProcess.
  Result<void> judge_writer(InodeNumber inode, const InodeRecord& record, Treatment& treatment);
  // The block of the inode's first name that is one.
  Result<std::uint64_t> number_of(InodeNumber inode);
  Result<void> follow_in_session(InodeNumber directory, std::uint32_t position,
                                 InodeNumber inode);

  OwnTime time_;
  Catalog& catalog_;
  InodeTable& table_;
  const FilePolicy otherwise_;
  const Keepers keepers_;
  std::atomic<std::int64_t> shortest_ttl_s_{INT64_MAX};
  std::atomic<std::uint64_t> told_age_{0};
  Tenants tenants_;
  Places places_;
  UseTable uses_;
  LookupCounts lookups_{uses_, tenants_};
  Processes processes_;
  Writers writers_;
  Crawlers crawlers_;
  // Held while crawlers_ and the learner's notes of listings change, so that both change in one
  // order. Before the locks of either.
  std::mutex listing_mutex_;
  order::Learner learner_;
  OrderFeed feed_{learner_};
  std::atomic<bool> heard_{false};
  std::atomic<bool> behind_{true};
  std::atomic<int> changing_{0};  // PlaceChanges
  std::mutex late_mutex_;         // a leaf
  std::vector<InodeNumber> late_;
  std::atomic<std::uint64_t> invisible_{0};
};

// The snapshot that a record holds, and the record with another one.
[[nodiscard]] order::Snapshot snapshot_in(const BlockRecord& record);
void store_snapshot(BlockRecord& record, const order::Snapshot& snapshot);

}  // namespace kvcachefs
