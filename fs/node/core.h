// What all parts of one mounted filesystem share.
//
// Lock order: inode locks, several of them in the order of their numbers (LockedInodes) → the
// leaves (inode table, backing ids, queues of the background threads, the catalog's own). See
// fs/DESIGN.md.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>

#include "fs/budget/budget.h"
#include "fs/known/knowledge.h"
#include "fs/life/drop_history.h"
#include "fs/node/arriving.h"
#include "fs/node/descriptor_bound.h"
#include "fs/node/devices.h"
#include "fs/node/inode.h"
#include "fs/node/inode_table.h"
#include "fs/node/kernel_listings.h"
#include "fs/node/ports.h"
#include "fs/node/unseen_stores.h"
#include "fs/volume.h"
#include "metadata/catalog.h"

namespace kvcachefs {

struct SharedName;

struct Counters {
  std::atomic<std::uint64_t> open_files{0};
  std::atomic<std::uint64_t> unsealed{0};
  std::atomic<std::uint64_t> sealed_total{0};
  std::atomic<std::uint64_t> poisoned{0};
  std::atomic<std::uint64_t> damaged{0};
  std::atomic<std::uint64_t> lost{0};
  std::atomic<std::uint64_t> unreadable{0};
  std::atomic<std::uint64_t> changed_on_purpose{0};
  // Files that were no blocks, and went because room was needed.
  std::atomic<std::uint64_t> evicted_plain{0};
  std::atomic<std::uint64_t> duplicates{0};
  std::atomic<std::uint64_t> duplicates_of_other_size{0};
};

struct Core {
  Core(Catalog& its_catalog, std::unique_ptr<Devices> its_devices,
       const VolumeOptions& its_options, BackingIds* ids,
       KernelNotifications* its_notifications)
      : catalog(its_catalog),
        devices(std::move(its_devices)),
        options(its_options),
        backing_ids(ids),
        notifications(its_notifications),
        listings(its_notifications),
        table(its_catalog, [this](const Inode& inode) { unreferenced(inode); }),
        knowledge(its_catalog, table,
                  its_options.keep_by_default ? FilePolicy::kKeep : FilePolicy::kCache,
                  its_options.clocks, its_options.keepers),
        budget(*devices, knowledge, its_options.budget) {}

  [[nodiscard]] bool passthrough() const noexcept {
    return backing_ids != nullptr && backing_ids->available();
  }
  // The last reference to an inode has gone: its backing id is given back, and one without a
  // name goes to the reaper.
  void unreferenced(const Inode& inode) {
    if (inode.backing_id != 0) backing_ids->close(inode.backing_id);
    if (inode.record.nlink == 0 && on_nameless) on_nameless(inode.number, inode.evicting);
  }

  Catalog& catalog;
  std::unique_ptr<Devices> devices;
  const VolumeOptions options;
  BackingIds* const backing_ids;             // null: never passthrough
  KernelNotifications* const notifications;  // null: nobody to tell
  KernelListings listings;
  Counters counters;
  // Opens for writing, of all files since the start. An inode has the number of its last one.
  std::atomic<std::uint64_t> write_opens{0};
  DescriptorBound descriptors{DescriptorBound::limit_of_process()};
  DropHistory drops;
  // The machine went down under the last run, or under one before whose objects were not all looked at since.
  // Those that it had: where the backing file is missing, the record of an eviction may have been lost, and
  // where it is another one, that of a change. before == 0: it did not.
  MachineCut cut;
  bool is_first_since_cut = false;  // this run is the first since then
  // Of that, who has not seen all yet: the walk over the objects, and the one over backing files that are of none.
  std::atomic<int> cut_looks_left{2};
  // Ids from here on are of this run.
  ObjectId first_object = 0;
  // RunMarker::closed_from of the last run; nullopt: what is found changed may have been changed
  // by who had it open or mapped then.
  std::optional<ObjectId> closed_from;
  UnixNanos started = 0;
  UnseenStores unseen;
  // Set once before the mount answers, to the background threads' wake-up calls. They queue and
  // return.
  std::function<void(InodeNumber, bool evicted)> on_nameless;
  std::function<void(InodeNumber)>
      on_unwritten;  // the last writer of an unsealed file has gone
  // A lookup by who may load it has found a block of this size.
  std::function<void(Inode&, std::uint64_t size)> on_found;
  // A block is opened for reading, with these flags; the caller holds the inode's lock.
  std::function<void(Inode&, int flags)> on_loading;
  std::function<void()> on_orphan_object;
  // There is a pool: names that are taken away here are taken away there, too; and what is sealed is published.
  bool is_pooled = false;
  bool is_publishing = false;
  // Whether a directory that is not known to be there may be, by others. Asks nobody, and takes leaves alone.
  std::function<bool(const SharedName&)> may_be_on_pool;
  // Room is short, and nothing can go but what waits to be published: that may, where nobody knows of an older one there.
  std::atomic<bool> is_desperate{false};
  // A directory was told something, or the mount has just begun: whose each file is is not noted yet.
  std::atomic<bool> is_recounting{true};
  // Something is to be done there.
  std::function<void()> on_pool_work;
  // Brings the bytes of a file in state `remote`; waits for the pool. Errors: ENOENT (a miss), ESTALE (another
  // has its name by now), EIO, ENOSPC.
  std::function<Result<void>(const InodePtr&)> fetch;
  // Whether one of this size is read while it comes; and opens such a file. nullopt: its bytes are here by now.
  std::function<bool(std::uint64_t size)> comes_in_frames;
  std::function<Result<std::optional<Arrival>>(const InodePtr&)> fetch_in_frames;
  std::function<void()>
      on_sync_wanted;                // a commit should reach the disk soon, nobody waits for it
  std::function<void()> on_counted;  // what the last run left is, and its order is known
  std::function<void()> on_policy_told;  // a directory was: what is kept is to be counted again
  InodeTable table;                      // its end calls unreferenced()
  Knowledge knowledge;
  Budget budget;
};

// Locks several inodes without a deadlock: in the order of their numbers, each once. Null
// pointers are passed over.
class LockedInodes {
 public:
  explicit LockedInodes(std::initializer_list<Inode*> inodes) {
    for (Inode* inode : inodes) {
      if (inode != nullptr && std::find(locked_.begin(), locked_.begin() + count_, inode) ==
                                  locked_.begin() + count_) {
        locked_[static_cast<std::size_t>(count_++)] = inode;
      }
    }
    std::sort(locked_.begin(), locked_.begin() + count_,
              [](const Inode* a, const Inode* b) { return a->number < b->number; });
    for (int i = 0; i < count_; ++i) locked_[static_cast<std::size_t>(i)]->mutex.lock();
  }
  ~LockedInodes() {
    for (int i = count_; i > 0; --i) locked_[static_cast<std::size_t>(i - 1)]->mutex.unlock();
  }
  LockedInodes(const LockedInodes&) = delete;
  LockedInodes& operator=(const LockedInodes&) = delete;

 private:
  static constexpr std::size_t kMost = 8;  // a rename touches four
  std::array<Inode*, kMost> locked_{};
  int count_ = 0;
};

}  // namespace kvcachefs
