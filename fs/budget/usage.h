// How many bytes each device holds for us, and what of them could go.
//
//   evictable   sealed files of the cache          ─┐ counted when they are sealed, by what their
//   open        of these, those that are open        │ backing files occupy then
//   kept        sealed files that must stay        ─┘
//   settling    files that are whole and not sealed yet: they could go as well
//   live        everything else that is not sealed, what is open without a name, and what a rewrite that
//               is under way will replace: measured while it is written
//   leaving     without a name and not open: the reaper has not come to it yet
//
// What the last run has left is counted by a walk over the objects in the order of their ids, beside
// the mount's work; until it has ended, what that run said it had is believed. Every step here and every look of the walk is made under the lock of the inode, so
// a file is either before the walk's front, and its steps count, or the walk will meet it as it is.
// A walk can be made again (a directory got another policy): its sums replace those before.
//
// Each of these is summed by tenant (fs/known/tenants.h) as well, over all devices; what is leaving is
// nobody's any more.
//
// Any thread; the lock is a leaf. Memory: some 60 bytes a live file, a byte or two one that is kept or a
// tenant's (object_marks.h).
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs/budget/object_marks.h"
#include "fs/known/tenants.h"
#include "metadata/record.h"

namespace kvcachefs {

// A sealed file's object.
struct SealedCopy {
  ObjectId object = kNoObject;
  std::uint32_t device = 0;  // index into the catalog's device table
  std::uint64_t bytes = 0;   // allocated
  bool kept = false;         // its names, or a policy, say so
  TenantSlot tenant = 0;
  bool open = false;
};

struct UsageSums {
  std::uint64_t evictable = 0;
  std::uint64_t open = 0;
  std::uint64_t kept = 0;
  std::uint64_t settling = 0;
  std::uint64_t live = 0;
  std::uint64_t leaving = 0;
  std::uint64_t leaving_files = 0;
  std::uint64_t ahead = 0;  // allocated ahead of the writers of live files, beside all of these
  std::uint64_t written = 0;  // that live files grew by, since the start
  // Of sealed files, by what the last run said; 0 as soon as they are counted.
  std::uint64_t believed = 0;
  // The walk has ended: `evictable` and `kept` are counted.
  bool complete = false;
  // It has, or the last run has said.
  bool known = false;
  [[nodiscard]] std::uint64_t sealed() const noexcept { return evictable + open + kept; }
  [[nodiscard]] std::uint64_t all() const noexcept {
    return sealed() + believed + settling + live + leaving;
  }
};

// What one tenant has, on all devices.
struct TenantUse {
  std::uint64_t evictable = 0;
  std::uint64_t open = 0;
  std::uint64_t kept = 0;
  std::uint64_t live = 0;           // also what is settling
  std::uint64_t settling = 0;       // of that: it can be evicted in a moment
  std::uint64_t staying_files = 0;  // how many are kept, or live and not settling
  [[nodiscard]] std::uint64_t all() const noexcept { return evictable + open + kept + live; }
  [[nodiscard]] std::uint64_t stays() const noexcept { return open + kept + live - settling; }
};
using TenantUses = std::array<TenantUse, order::kGroups>;  // by slot

class Usage {
 public:
  explicit Usage(std::uint32_t devices) : devices_(devices) {}

  // ---- steps; the caller holds the inode's lock ----

  void made(InodeNumber inode, std::uint32_t device, TenantSlot tenant);
  // A live file has got another name.
  void set_tenant(InodeNumber inode, TenantSlot tenant);
  // Of a live file: what it occupies now, and what the filesystem below has allocated ahead of
  // its writer, which is no use of it.
  void measured(InodeNumber inode, std::uint64_t bytes, std::uint64_t ahead = 0);
  // Of a live file: nobody writes it any more, or somebody does again.
  void set_settling(InodeNumber inode, bool settling);
  void sealed(InodeNumber inode, const SealedCopy& copy);
  // A sealed file that is written, or truncated.
  void unsealed(InodeNumber inode, const SealedCopy& copy);
  // Somebody has opened a sealed file, and the last one has closed it.
  void opened(const SealedCopy& copy);
  void closed(ObjectId object);
  // Whether a sealed file's object is counted as something else; then counted_anew() sets it right.
  [[nodiscard]] bool is_counted_wrong(ObjectId object, ObjectMark mark) const;
  void counted_anew(const SealedCopy& copy);
  // A sealed file lost its last name.
  void nameless(InodeNumber inode, const SealedCopy& copy, bool is_open);
  // A rewrite has begun: the object stays until the new one is published. `sealed`: nullopt: it was not.
  void replaced(InodeNumber inode, ObjectId object, const std::optional<SealedCopy>& sealed);
  // The new one was published: what it replaced is leaving.
  void let_go(ObjectId object);
  // The rewrite is taken back: `object` is the file's again, as it was, and its `replacement` is leaving.
  void taken_back(InodeNumber inode, ObjectId replacement, ObjectId object,
                  const std::optional<SealedCopy>& sealed);
  // Somebody has it mapped: what is leaving stays as long as he has.
  void mapped(ObjectId object);
  // Those of inodes that lost their last name before the last call, and have not gone since;
  // none while there are very many.
  std::vector<std::pair<InodeNumber, ObjectId>> still_leaving();
  // A live one did, and nobody has it open.
  void live_nameless(InodeNumber inode, ObjectId object);
  // Counts as live, until the same is given back, the bytes (not 0) that a call is about to
  // take for the inode. Growth that is measured meanwhile is a part of them. No lock is needed.
  void reserve(InodeNumber inode, std::uint32_t device, TenantSlot tenant, std::uint64_t bytes);
  void give_back(InodeNumber inode, std::uint64_t bytes);
  // A backing file was unlinked, the inode's own or one that a rewrite replaced (no lock is needed).
  void reaped(InodeNumber inode, ObjectId object);
  void reaped_object(ObjectId object);

  // ---- the walk; one at a time ----

  // What the sealed files of all devices, by index, occupied when the last run was asked: holds, with the
  // steps made since, until they are counted.
  void believe(const std::vector<std::uint64_t>& sealed);

  // Ids from `first_new` on have not been given yet.
  void begin_walk(ObjectId first_new);
  // The caller holds the inode's lock; the copy is sealed and has a name.
  void walked(const SealedCopy& copy);
  // All up to and with `last` were met.
  void passed(ObjectId last);
  void end_walk();

  [[nodiscard]] UsageSums on(std::uint32_t device) const;
  // Without the sealed files, until they are counted; those that are kept count as the first
  // walk meets them.
  [[nodiscard]] TenantUses by_tenant() const;
  [[nodiscard]] std::uint64_t live_files() const;
  // Those of these live files that are of such tenants, the one that occupies most first,
  // `most` at most.
  [[nodiscard]] std::vector<InodeNumber> largest_of(const std::vector<InodeNumber>& inodes,
                                                    TenantMask tenants, std::size_t most) const;
  // The first walk has ended.
  [[nodiscard]] bool is_complete() const;
  // Whether a sealed file's object is counted as kept.
  [[nodiscard]] bool is_counted_kept(ObjectId object) const;

 private:
  struct Live {
    std::uint32_t device = 0;
    std::uint64_t bytes = 0;
    std::uint64_t ahead = 0;
    bool settling = false;
    TenantSlot tenant = 0;
    bool is_file = false;  // it has an inode below
  };
  // Room that calls are about to take for one inode, until they have given back all of it.
  struct Reserved {
    std::uint32_t device = 0;
    TenantSlot tenant = 0;
    std::uint64_t bytes = 0;    // that they asked for
    std::uint64_t base = 0;     // that the inode had without them
    std::uint64_t counted = 0;  // as live, beside those that the inode has
  };
  struct Leaving {
    std::uint32_t device = 0;
    std::uint64_t bytes = 0;
    TenantSlot tenant = 0;
    InodeNumber inode = 0;  // 0: a rewrite has replaced it
    bool held = false;      // by a rewrite that is not published: counted as live
    bool mapped = false;    // by somebody: counted as live, and as its tenant's
    bool seen = false;      // by still_leaving()
  };
  // A sealed file of the cache.
  struct Open {
    std::uint32_t device = 0;
    std::uint64_t bytes = 0;
    TenantSlot tenant = 0;
  };
  struct Sealed {
    std::int64_t evictable = 0;
    std::int64_t kept = 0;
    std::int64_t kept_files = 0;
  };
  // What a walk makes anew.
  struct Sums {
    std::vector<Sealed> devices;
    std::array<Sealed, order::kGroups> tenants{};
    ObjectMarks marks;
  };

  void add(const SealedCopy& copy);
  // What it was counted as.
  ObjectMark remove(const SealedCopy& copy);
  void add_open(const SealedCopy& copy);
  void remove_open(ObjectId object);
  static void add_to(Sums& sums, const SealedCopy& copy);
  static ObjectMark remove_from(Sums& sums, const SealedCopy& copy);
  [[nodiscard]] bool is_in_walk(ObjectId object) const noexcept {
    return walking_ && (object >= first_new_ || object <= passed_);
  }
  void set_leaving(ObjectId object, const Leaving& leaving);
  void leave_live(InodeNumber inode, ObjectId object);
  void count(const Leaving& leaving);
  void discount(const Leaving& leaving);
  void count(const Live& live);
  void discount(const Live& live);
  void set_live(InodeNumber inode, std::uint32_t device, std::uint64_t bytes,
                TenantSlot tenant);
  // The bytes that an inode has were measured, or those reserved for it have changed.
  void count_reserved(InodeNumber inode);
  [[nodiscard]] bool knows(std::uint32_t device) const noexcept {
    return device < devices_.size();
  }

  struct Device {
    std::uint64_t open = 0;
    std::uint64_t live = 0;
    std::uint64_t settling = 0;
    std::uint64_t leaving = 0;
    std::uint64_t leaving_files = 0;
    std::uint64_t ahead = 0;
    std::uint64_t written = 0;
    std::int64_t believed = 0;
  };

  mutable std::mutex mutex_;
  // Under mutex_.
  std::vector<Device> devices_;
  std::array<std::uint64_t, order::kGroups> live_of_{};        // bytes, by tenant
  std::array<std::uint64_t, order::kGroups> settling_of_{};    // the same, of these
  std::array<std::uint64_t, order::kGroups> live_files_of_{};  // those that are not settling
  std::array<std::uint64_t, order::kGroups> open_of_{};        // the same, of what is open
  std::unordered_map<ObjectId, Open> open_;
  std::unordered_map<InodeNumber, Live> live_;
  std::unordered_map<InodeNumber, Reserved> reserved_;
  std::unordered_map<ObjectId, Leaving> leaving_;
  Sums sums_;  // of the last walk that ended, and of the steps since
  Sums next_;  // of the walk under way
  bool complete_ = false;
  bool believes_ = false;
  bool walking_ = false;
  ObjectId first_new_ = 0;
  ObjectId passed_ = 0;
};

}  // namespace kvcachefs
