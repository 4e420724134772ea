// The budget of the mount's devices: what occupies them, how much room is left, what is leased and
// what has been used last. Who evicts (evictor.h) acts on it; calls tell it what happens and ask it.
//
// Any thread. Where an inode is named, the caller holds its lock, unless said otherwise. Nothing here
// waits for a disk's write-back; wait_for_room() waits for the evictor and says how long at most.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs/budget/budget_options.h"
#include "fs/budget/leases.h"
#include "fs/budget/mapped_files.h"
#include "fs/budget/metadata_bytes.h"
#include "fs/budget/open_bytes.h"
#include "fs/budget/staying.h"
#include "fs/budget/usage.h"
#include "fs/known/knowledge.h"
#include "fs/node/devices.h"
#include "fs/node/inode.h"
#include "fs/order/learner.h"

namespace kvcachefs {

// Room that is counted as taken before it is; until this ends. Its owner measures the inode
// before that: the room that it has taken would else be free for a moment.
class Reservation {
 public:
  Reservation(Usage& usage, InodeNumber inode, std::uint32_t device, TenantSlot tenant,
              std::uint64_t bytes)
      : usage_(&usage), inode_(inode), bytes_(bytes) {
    usage.reserve(inode, device, tenant, bytes);
  }
  Reservation(Reservation&& other) noexcept
      : usage_(std::exchange(other.usage_, nullptr)),
        inode_(other.inode_),
        bytes_(other.bytes_) {}
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() {
    if (usage_ != nullptr) usage_->give_back(inode_, bytes_);
  }

 private:
  Usage* usage_;
  const InodeNumber inode_;
  const std::uint64_t bytes_;
};

class Budget {
 public:
  Budget(Devices& devices, Knowledge& knowledge, const BudgetOptions& options);

  // ---- what happens ----

  // A new object; its inode is new, or its file is rewritten. No lock is needed for a new inode.
  void made(const Inode& inode);
  // After each commit of an inode's record: `before` is the one that was replaced.
  void changed(Inode& inode, const InodeRecord& before);
  // `inode.kept` and `inode.tenant` were looked at anew.
  void noted(Inode& inode);
  // Of a file that is not sealed, on any occasion at which its status is known. What the
  // filesystem below has allocated ahead of its writer is left out. The caller holds the
  // inode's lock.
  void measured(const Inode& inode, const struct stat& backing);
  // The first descriptor that may write was opened, and the last one closed.
  void writer_began(InodeNumber inode);
  void writer_ended(const Inode& inode);

  // ---- uses ----

  // A positive answer to a lookup or stat: a lease, if it is a file that anybody may read by now.
  bool answered(const Inode& inode, const struct stat& backing, uid_t user);
  void opened(const Inode& inode, const struct stat& backing, uid_t user);
  // Before an open of a file whose bytes stay: whether its user may hold them, which nobody can
  // evict while it is open. Errors: ENOSPC (it is more than open_bytes.h says, or than others'
  // shares leave).
  Result<OpenBytes::Hold> hold(const Inode& inode, const struct stat& backing, uid_t user);
  // It is open now, `bytes` of it being held; and its last descriptor was closed.
  void held(const Inode& inode, std::uint64_t bytes);
  void let_go(const Inode& inode);
  MetadataBytes& metadata() noexcept { return metadata_; }
  MappedFiles& mapped() noexcept { return mapped_; }
  OpenBytes& open_bytes() noexcept { return open_bytes_; }
  // A file that is no block was used, or got such a name. No lock is needed.
  void used(InodeNumber inode) { files_.used(inode, knowledge_.now()); }
  // The same, and whose it is.
  void used_as(InodeNumber inode, TenantSlot tenant);
  // It is whole since then, and may not have been used: it is in the order from here on. `written`: by the kernel, of the
  // bytes in `object`.
  void stored(InodeNumber inode, UnixNanos written, ObjectId object, TenantSlot tenant);
  // The same of a file of the last run, by when it was written.
  void known(InodeNumber inode, UnixNanos written, ObjectId object, TenantSlot tenant);
  [[nodiscard]] bool is_leased(InodeNumber inode) const;
  Leases& leases() noexcept { return leases_; }
  // How long the kernel may remember an answer that made a lease: short against it.
  [[nodiscard]] double longest_timeout_s() const noexcept { return longest_timeout_s_; }

  // ---- questions; no lock is needed ----

  // Who opens a file on it for writing now is served by the daemon, which sees each write fail.
  [[nodiscard]] bool is_tight(std::uint32_t device) const;
  // The same of a tenant's file: what it may have of what cannot be evicted (staying.h) comes
  // to its end.
  [[nodiscard]] bool is_near_bound(TenantSlot tenant) const;
  // Whether a tenant's file there may grow. Errors: EDQUOT (as is_over_quota(), or what cannot
  // be evicted is more than the quota), ENOSPC (as is_full(), or that is more than what others'
  // shares leave).
  Result<void> check_growth(std::uint32_t device, TenantSlot tenant) const;
  // Whether so many bytes of a tenant that can be evicted may become such that cannot. Errors:
  // as check_growth().
  Result<void> check_staying(TenantSlot tenant, std::uint64_t bytes) const;
  // Looks at it anew for check_growth(): after look(), and when somebody has written a lot
  // since.
  Staying look_at_staying();
  // As of now; where nobody has a share or a quota it costs nothing.
  [[nodiscard]] Staying staying() const;
  // It has more than its quota, and nothing of that can be evicted: EDQUOT.
  [[nodiscard]] bool is_over_quota(TenantSlot tenant) const;
  // Over its budget, and nothing can be evicted: ENOSPC. What stays may go the next moment (a
  // lease ends, or the process that owns it): while there is an evictor the call waits until that
  // has looked at all once more, for kLongestConfirmed at most, unless the thread refuses to
  // wait.
  [[nodiscard]] bool is_full(std::uint32_t device) const;
  // The evictor is behind with it: who takes room there waits, or does without.
  [[nodiscard]] bool is_short(std::uint32_t device) const;
  // Whether the close of a file that such a tenant has written is to wait_for_room(). The room
  // is made of what those have who have more than their share, and they wait for it; who is
  // within his share waits only where half as much is left.
  [[nodiscard]] bool waits_for_room(std::uint32_t device, TenantSlot tenant) const;
  // Waits until that is no longer so, nothing more can be evicted, or kLongestWait is over
  // since `called`.
  void wait_for_room(std::uint32_t device, TenantSlot tenant,
                     std::chrono::steady_clock::time_point called);
  // Whether all that is counted fits by now, headroom included.
  [[nodiscard]] bool has_room(std::uint32_t device) const;
  // The same of what is written by us, as loads are, and was counted as usage() before: the evictor is awake meanwhile, and
  // where it is short of room it is waited for as above.
  [[nodiscard]] bool make_room(std::uint32_t device, TenantSlot tenant,
                               std::chrono::steady_clock::time_point called);
  // The same of many bytes that one call takes at once. What does not fit beside what must
  // stay, on the device or in its tenant's quota, is refused at once, and costs nobody
  // anything. Else waits until others' files have made the room, for kLongestTake at most.
  // Errors: EDQUOT, ENOSPC. The inode is on the device.
  Result<Reservation> reserve(const Inode& inode, std::uint32_t device, std::uint64_t bytes,
                              std::chrono::steady_clock::time_point called);
  // Whether so many bytes would fit beside what must stay.
  [[nodiscard]] bool can_hold(std::uint32_t device, std::uint64_t bytes) const;
  // Grows whenever the filesystem below was seen so full that writes may have failed unseen.
  [[nodiscard]] std::uint64_t danger(std::uint32_t device) const;
  [[nodiscard]] DeviceRoom room_on(std::uint32_t device) const;
  [[nodiscard]] std::uint64_t slowed() const noexcept { return slowed_.load(); }

  // ---- of the evictor ----

  // Measures what is being written and looks at the devices. Of a device that does not answer, what was
  // seen last holds.
  void look(const std::function<InodePtr(InodeNumber)>& find, std::int64_t now_ns);
  // The outcome of the last round of evictions: nothing was left that could go, of all that a
  // walk has met that began then; nullopt: something was.
  void set_exhausted(std::uint32_t device,
                     std::optional<std::chrono::steady_clock::time_point> walk_began);
  // Its thread runs from now on, and calls announce() after each round; or has ended.
  void set_watched(bool watched);
  // The files of such tenants that somebody writes, the one that occupies most first, `most` at
  // most.
  [[nodiscard]] std::vector<InodeNumber> largest_written(TenantMask tenants,
                                                         std::size_t most) const;
  void set_over_quota(TenantMask tenants) noexcept { over_quota_.store(tenants); }
  // Those who have more than their share; none: nobody has a share.
  void set_over_share(TenantMask tenants) noexcept { over_share_.store(tenants); }
  // Of those who were, these have too much still.
  void keep_over_quota(TenantMask tenants) noexcept { over_quota_.fetch_and(tenants); }
  [[nodiscard]] bool has_writers() const;
  // The files that are being rewritten, and what they held before is still there, in the order of their numbers.
  [[nodiscard]] std::vector<InodeNumber> rewritten(InodeNumber after, std::size_t most) const;
  // Wakes whoever waits for room.
  void announce();
  Usage& usage() noexcept { return usage_; }
  [[nodiscard]] const Usage& usage() const noexcept { return usage_; }
  // The files that are no blocks, by inode number.
  order::Learner& files() noexcept { return files_; }
  // Set once before the mount answers: there is a writer again. Returns at once.
  std::function<void()> on_writer;
  // The same: what the metadata occupies. Asked by look().
  std::function<std::uint64_t()> database_bytes;

  // The copy of a sealed file; the caller holds its lock. nullopt: its backing file does not answer.
  std::optional<SealedCopy> sealed_copy(Inode& inode, const InodeRecord& record);
  // The same for counting it: where its backing file does not answer, by the size that is recorded.
  std::optional<SealedCopy> counted_copy(Inode& inode, const InodeRecord& record);

 private:
  // So long a close may take when evictions do not come through.
  static constexpr std::chrono::seconds kLongestWait{2};
  // A walk over some files takes milliseconds, and one over a million seconds.
  static constexpr std::chrono::seconds kLongestConfirmed{1};
  // A whole disk of small files takes longer.
  static constexpr std::chrono::seconds kLongestTake{10};
  // Looked at in one round; the others in the next.
  static constexpr std::size_t kMostMeasured = 1024;

  struct Device {
    DeviceLimits limits;
    WriteRate rate;       // of look()'s thread
    DeviceRoom seen;      // under mutex_
    bool looked = false;  // `seen` is something; until then there is room; under mutex_
    // When the walk began that found nothing; nullopt: something can go. Under mutex_.
    std::optional<std::chrono::steady_clock::time_point> exhausted_since;
    double typical = 0;         // bytes of a file; under mutex_
    std::uint64_t writers = 0;  // under mutex_
    std::uint64_t danger = 1;   // under mutex_
  };

  Result<Reservation> reserve_if_it_fits(const Inode& inode, std::uint32_t device,
                                         std::uint64_t bytes);
  // The bounds as if tenants had that much. No lock is needed.
  [[nodiscard]] Staying staying_of(const TenantUses& uses) const;
  // What is left by now: at the last look, less what has grown since. The caller holds mutex_.
  [[nodiscard]] std::int64_t room_now(std::uint32_t device) const;
  [[nodiscard]] bool is_below_low(std::uint32_t device, int part = 1) const;    // the same
  [[nodiscard]] bool waits_now(std::uint32_t device, TenantSlot tenant) const;  // the same
  void look_at(std::uint32_t index, std::int64_t now_ns);
  void look_at_database(std::int64_t now_ns);
  // `budget`: of all devices.
  void look_at_bounds(std::uint64_t budget);
  // The files that somebody writes.
  [[nodiscard]] std::vector<InodeNumber> written() const;
  void measure(const std::function<InodePtr(InodeNumber)>& find);
  void note_settling(const Inode& inode);
  void note_rewrite(InodeNumber number, const InodeRecord& before, const InodeRecord& after);
  bool grant(const Inode& inode, const struct stat& backing, uid_t user, bool opened);

  Devices& devices_;
  Knowledge& knowledge_;
  Usage usage_;
  Leases leases_;
  MetadataBytes metadata_;
  OpenBytes open_bytes_;
  MappedFiles mapped_;
  order::Learner files_;
  const double longest_timeout_s_;
  std::optional<std::uint32_t> database_on_;  // device
  std::int64_t database_asked_ns_ = 0;        // of look()'s thread
  std::mutex reserving_;                      // held while mutex_ is taken
  mutable std::mutex mutex_;                  // a leaf
  mutable std::condition_variable room_made_;
  bool is_watched_ = false;  // under mutex_
  std::vector<Device> of_;   // by index in the catalog's device table
  std::unordered_map<InodeNumber, std::uint32_t> writing_;  // inode to device; under mutex_
  std::set<InodeNumber> rewritten_;                         // under mutex_
  InodeNumber measured_last_ = 0;
  std::atomic<std::uint64_t> slowed_{0};
  std::atomic<TenantMask> over_quota_{0};
  std::atomic<TenantMask> over_share_{0};
  // Of staying(), as of the last look: files of these may not grow.
  std::atomic<TenantMask> stays_over_bound_{0};
};

// What a file occupies.
[[nodiscard]] inline std::uint64_t allocated_bytes(const struct stat& backing) noexcept {
  return static_cast<std::uint64_t>(backing.st_blocks) * 512;
}

// The same of one that is being written, without what the filesystem below has set aside for
// its writer. XFS allocates up to twice as much again as such a file has, and takes it back
// with the close, or when it is full itself (xfs_iomap_prealloc_size() in fs/xfs/xfs_iomap.c,
// xfs_blockgc_free_space() in fs/xfs/xfs_icache.c): it is no use of the budget. The caller
// holds the inode's lock.
[[nodiscard]] std::uint64_t written_bytes(const Inode& inode,
                                          const struct stat& backing) noexcept;

}  // namespace kvcachefs
