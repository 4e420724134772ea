// Puts the parts together; every call goes straight to the part that does it.
#include "fs/volume.h"

#include <dirent.h>

#include <algorithm>
#include <chrono>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "fs/budget/evictor.h"
#include "fs/budget/expirer.h"
#include "fs/data/files.h"
#include "fs/explain/evict.h"
#include "fs/explain/explain.h"
#include "fs/flush.h"
#include "fs/known/block_keeper.h"
#include "fs/known/known_name.h"
#include "fs/life/device_watch.h"
#include "fs/life/object_walk.h"
#include "fs/life/reaper.h"
#include "fs/life/recover.h"
#include "fs/life/scrub.h"
#include "fs/life/seal.h"
#include "fs/life/stager.h"
#include "fs/life/stall_teller.h"
#include "fs/life/verify.h"
#include "fs/names/attrs.h"
#include "fs/names/directories.h"
#include "fs/names/namespace.h"
#include "fs/names/read_times.h"
#include "fs/node/attributes.h"
#include "fs/node/core.h"
#include "fs/pool/damaged_files.h"
#include "fs/pool/evicted_early.h"
#include "fs/pool/pool_evictor.h"
#include "fs/pool/pool_files.h"
#include "fs/pool/pool_listings.h"
#include "fs/pool/pool_stager.h"
#include "fs/pool/publisher.h"
#include "fs/pool/replaced_names.h"
#include "fs/pool/sync_on_pool.h"
#include "fs/synthetic/tree.h"

namespace kvcachefs {

struct Volume::Parts {
  Parts(Catalog& catalog, std::unique_ptr<Devices> devices, const VolumeOptions& options,
        BackingIds* ids, KernelNotifications* notifications)
      : core(catalog, std::move(devices), options, ids, notifications) {
    if (options.pool == nullptr) return;
    damaged.emplace(*options.pool);
    pool_files.emplace(core, names, *options.pool, options.pool_options, replaced,
                       evicted_early, *damaged);
    pool_stager.emplace(core, *pool_files);
    pool_listings.emplace(core, *options.pool);
    publisher.emplace(core, *options.pool, replaced, evicted_early, *damaged);
    if (options.pool_options.size > 0 && !options.read_only)
      pool_evictor.emplace(catalog, *options.pool, *pool_files, options.pool_options.size);
  }

  Core core;
  Namespace names{core};
  Directories directories{core};
  Attributes attributes{core};
  Verifier verifier{core};
  Files files{core, names, verifier};
  SyntheticTree synthetic{core};
  Sealer sealer{core};
  Reaper reaper{core};
  ReadTimes read_times{core.options.read_times};  // The reaper hears of what it lets go of.
  BlockKeeper keeper{core, [this] { read_times.write(core); }};
  ObjectWalk object_walk{core};
  Scrubber scrubber{core, verifier, core.options.scrub_bytes_per_second};
  Stager stager{core, verifier, core.options.stage_bytes};
  Evictor evictor{core};
  Expirer expirer{core};
  DeviceWatch device_watch{core};
  StallTeller stall_teller{core};
  ReplacedNames replaced;
  EvictedEarly evicted_early;
  std::optional<DamagedFiles> damaged;  // with a pool, as the next
  std::optional<PoolFiles> pool_files;
  std::optional<PoolStager> pool_stager;
  std::optional<PoolListings> pool_listings;
  std::optional<Publisher> publisher;
  std::optional<PoolEvictor> pool_evictor;  // with a size for it
  RecoveryReport recovery;
  bool is_started = false;

  // Whose quota and share it counts against; nullopt: nobody's.
  // Error: kMustWait.
  Result<std::optional<Tenant>> tenant_of(InodeNumber number) {
    const Tenants& tenants = core.knowledge.tenants();
    if (!tenants.had_any() || SyntheticTree::owns(number)) return std::optional<Tenant>{};
    const Result<InodePtr> inode = core.table.get(number);
    if (!inode.ok()) return std::optional<Tenant>{};
    if ((*inode)->is_file())
      return tenants.find((*inode)->tenant.load(std::memory_order_relaxed));
    const NameLook seen = core.knowledge.look(number, "statvfs");
    if (seen.must_wait) return fail(kMustWait, "the directory lies deep");
    return tenants.find(seen.tenant);
  }

  // As ReadTimes::note().
  bool note_read(InodeNumber number) {
    const Result<InodePtr> inode = core.table.get(number);
    return inode.ok() && read_times.note(*inode);
  }

  // What was closed is sealed and published soon. With a pool.
  void hurry_to_pool() {
    sealer.hurry();
    publisher->wake();
  }
};

namespace {

// Nothing can be changed in what is made up.
Result<void> check_real(InodeNumber inode) {
  if (SyntheticTree::owns(inode)) return fail(EROFS, "a made-up directory");
  return {};
}
// The same of a name that is to be made.
Result<void> check_real(InodeNumber parent, std::string_view name) {
  if (SyntheticTree::is_entrance(parent, name))
    return fail(EROFS, "the name of a made-up directory");
  return check_real(parent);
}
// The outcome for a name that the catalog has not: a made-up one cannot be taken away.
template <typename T>
Result<T> unless_made_up(Result<T> outcome, InodeNumber parent, std::string_view name) {
  if (!outcome.ok() && outcome.error().code == ENOENT &&
      SyntheticTree::is_entrance(parent, name))
    return fail(EROFS, "the name of a made-up directory");
  return outcome;
}

}  // namespace

Volume::Volume(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Volume::~Volume() { stop(0); }

Result<std::unique_ptr<Volume>> Volume::open(
    Catalog& catalog, std::vector<std::unique_ptr<Tier>> devices, const VolumeOptions& options,
    BackingIds* backing_ids, KernelNotifications* notifications, std::string& problem) {
  problem =
      "the catalog names a device that was not given: give all --nvme directories of this "
      "state directory";
  std::unique_ptr<Devices> places = TRY(Devices::create(catalog, std::move(devices)));
  std::unique_ptr<Volume> volume(new Volume(std::make_unique<Parts>(
      catalog, std::move(places), options, backing_ids, notifications)));
  Parts& parts = *volume->parts_;
  parts.core.on_nameless = [&parts](InodeNumber number, bool evicted) {
    parts.reaper.add_inode(number, evicted);
  };
  parts.core.on_unwritten = [&parts](InodeNumber number) { parts.sealer.wake(number); };
  if (options.stage_bytes > 0) {
    parts.core.on_found = [&parts](Inode& inode, std::uint64_t size) {
      const Result<bool> remote = parts.pool_stager ? parts.files.is_remote(inode) : false;
      remote.ok() && *remote ? parts.pool_stager->found(inode)
                             : parts.stager.found(inode, size);
    };
    parts.core.on_loading = [&parts](Inode& inode, int flags) {
      parts.stager.opened(inode, flags);
    };
  }
  if (parts.pool_files) {
    parts.core.is_pooled = true;
    parts.core.is_publishing = options.pool_options.writes != PoolWrites::kOff;
    parts.core.fetch = [&parts](const InodePtr& inode) {
      return parts.pool_files->fetch(inode);
    };
    parts.core.comes_in_frames = [&parts](std::uint64_t size) {
      return parts.pool_files->is_large(size);
    };
    parts.core.fetch_in_frames = [&parts](const InodePtr& inode) {
      return parts.pool_files->fetch_in_frames(inode);
    };
    parts.core.may_be_on_pool = [&parts](const SharedName& shared) {
      return parts.pool_files->may_be_there(shared);
    };
    parts.core.on_pool_work = [&parts] { parts.publisher->wake(); };
    options.pool->on_joined = [&catalog](const Uuid& pool) {
      if (const Result<void> put = catalog.set_pool(pool); !put.ok())
        log_warn("pool not noted errno={}", put.error().code);
    };
    options.pool->on_change = [&parts](const PoolLogRecord& record) {
      parts.pool_files->on_change(record);
    };
    options.pool->on_gap = [&parts] { parts.pool_files->on_gap(); };
  }
  parts.core.on_orphan_object = [&parts] { parts.reaper.add_object(); };
  parts.core.on_sync_wanted = [&parts] { parts.sealer.want_sync(); };
  parts.core.on_policy_told = [&parts] {
    parts.object_walk.again();
    // What is to be kept is told there, too.
    if (parts.core.on_pool_work) parts.core.on_pool_work();
  };
  parts.core.on_counted = [&parts] { parts.expirer.wake(); };
  parts.core.knowledge.on_shorter_ttl = [&parts] { parts.expirer.wake(); };
  parts.core.budget.database_bytes = [&parts] { return parts.core.catalog.disk_bytes(); };
  parts.core.budget.on_writer = [&parts] { parts.evictor.wake(); };
  parts.evictor.on_nothing_left = [&parts] { parts.sealer.hurry(); };
  parts.core.devices->is_tight = [&parts](std::uint32_t index) {
    return parts.core.budget.is_tight(index);
  };
  parts.core.devices->is_full = [&parts](std::uint32_t index) {
    return parts.core.budget.is_full(index);
  };
  parts.core.devices->on_suspect = [&parts](std::uint32_t index) {
    parts.device_watch.suspect(index);
  };
  parts.core.knowledge.on_unread = [&parts] { parts.keeper.wake(); };
  TRY(parts.object_walk.restore_metadata());
  Result<RecoveryReport> recovered = recover(parts.core, parts.reaper, problem);
  if (!recovered.ok()) {
    log_error("recovery failed step=\"{}\" errno={}", recovered.error().what,
              recovered.error().code);
    return recovered.error();
  }
  parts.recovery = std::move(*recovered);
  TRY(parts.names.load_native_map());
  TRY(parts.object_walk.believe_last_run());
  // The first statfs may come before the evictor has looked at the devices.
  parts.core.budget.look([](InodeNumber) { return InodePtr{}; }, monotonic_now());
  return volume;
}

void Volume::start() {
  parts_->is_started = true;
  parts_->sealer.start();
  parts_->reaper.start();
  parts_->core.knowledge.start();
  parts_->keeper.start();
  const std::string& kind = parts_->recovery.kind;
  parts_->object_walk.start(kind == "daemon" || kind == "machine");
  parts_->evictor.start();
  parts_->expirer.start();
  parts_->scrubber.start();
  parts_->stager.start();
  parts_->device_watch.start();
  parts_->stall_teller.start();
  if (parts_->publisher) {
    parts_->core.options.pool->start();
    parts_->pool_files->start();
    parts_->publisher->start();
    parts_->pool_stager->start();
  }
  if (parts_->pool_evictor) parts_->pool_evictor->start();
  if (parts_->core.counters.unsealed.load() > 0) parts_->sealer.wake(0);
}

void Volume::stop(double deadline_s, bool closed) {
  if (parts_ == nullptr) return;
  Parts& parts = *parts_;
  if (parts.pool_evictor) parts.pool_evictor->stop();
  if (parts.publisher) {
    parts.pool_files->stop();
    parts.pool_stager->stop();
    parts.publisher->stop();
    parts.core.options.pool->stop();
  }
  parts.device_watch.stop();
  parts.stall_teller.stop();
  parts.stager.stop();
  parts.scrubber.stop();
  parts.files.release_all();
  parts.core.table.clear();
  // Nobody was told of the last close of what the kernel has let go of with the mount.
  if (deadline_s > 0) parts.sealer.wake(0);
  parts.evictor.stop();
  parts.expirer.stop();
  parts.object_walk.stop();
  parts.core.knowledge.stop();
  parts.keeper.stop();
  parts.sealer.stop(std::chrono::milliseconds(static_cast<std::int64_t>(deadline_s * 1000)));
  parts.reaper.stop();
  if (deadline_s <= 0) return;
  // Nobody has looked for what the last run's crash left: the next start does.
  const bool was_crash = parts.recovery.kind == "daemon" || parts.recovery.kind == "machine";
  if (was_crash && !parts.is_started) return;
  parts.object_walk.write_down();
  if (const Result<void> marked = mark_clean(parts.core, closed); !marked.ok()) {
    log_error("clean stop not recorded errno={} step=\"{}\": the next start recovers",
              marked.error().code, marked.error().what);
  }
}

Result<Entry> Volume::lookup(InodeNumber parent, std::string_view name, const Caller& caller,
                             double* miss_timeout_s, AskPool ask) {
  if (SyntheticTree::owns(parent)) {
    // What it has not may be there the next moment.
    if (miss_timeout_s != nullptr) *miss_timeout_s = 0;
    if (parent == SyntheticTree::kTop && name == "..")
      return parts_->names.lookup(kRootInode, ".", caller, nullptr);
    return parts_->synthetic.lookup(parent, name, caller);
  }
  InodePtr brought;
  if (ask == AskPool::kYes && parts_->pool_files)
    brought = parts_->pool_files->bring(parent, name, stages_in_now(caller));
  Result<Entry> entry = parts_->names.lookup(parent, name, caller, miss_timeout_s);
  // Another node may publish it the next moment, and nobody would tell the kernel.
  if (parts_->pool_files && miss_timeout_s != nullptr) *miss_timeout_s = 0;
  if (parts_->pool_files && entry.ok())
    entry->entry_timeout_s = std::min(entry->entry_timeout_s, kPoolEntryTimeout);
  if (!entry.ok() && entry.error().code == ENOENT && SyntheticTree::is_entrance(parent, name))
    return parts_->synthetic.enter();
  return entry;
}
// Whether what the caller looks up on the pool is loaded before anything else.
bool Volume::stages_in_now(const Caller& caller) const {
  return parts_->core.options.stage_bytes > 0 && parts_->pool_stager->is_idle() &&
         !parts_->core.knowledge.is_crawling(caller.pid);
}
bool Volume::is_made_up(InodeNumber directory) noexcept {
  return SyntheticTree::owns(directory);
}
bool Volume::lookup_asks_pool(InodeNumber parent, std::string_view name) {
  return parts_->pool_files && !SyntheticTree::owns(parent) &&
         parts_->pool_files->is_wanted(parent, name);
}
void Volume::forget(InodeNumber inode, std::uint64_t lookups) {
  if (SyntheticTree::owns(inode)) return parts_->synthetic.forget(inode, lookups);
  KernelListings& listings = parts_->core.listings;
  const std::uint64_t opens = listings.opens();
  if (parts_->core.table.forget(inode, lookups)) listings.forgotten(inode, opens);
}
Result<Entry> Volume::make_node(InodeNumber parent, std::string_view name, mode_t mode,
                                dev_t rdev, const Caller& caller) {
  TRY(check_real(parent, name));
  return parts_->names.make_node(parent, name, mode, rdev, caller);
}
Result<Entry> Volume::make_symlink(InodeNumber parent, std::string_view name,
                                   std::string_view target, const Caller& caller) {
  TRY(check_real(parent, name));
  return parts_->names.make_symlink(parent, name, target, caller);
}
Result<Entry> Volume::link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name,
                           const Caller& caller) {
  return link(inode, new_parent, new_name, caller, waits_for_disk(new_parent, new_name));
}
Result<Entry> Volume::link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name,
                           const Caller& caller, bool waits) {
  TRY(check_real(inode));
  TRY(check_real(new_parent, new_name));
  if (waits) TRY(parts_->files.keep_safe(inode));
  Entry entry = TRY(parts_->names.link(inode, new_parent, new_name, caller));
  if (waits) {
    if (const Result<void> synced = parts_->core.catalog.sync(); !synced.ok()) {
      forget(inode, 1);
      return synced.error();
    }
  }
  return entry;
}
Result<void> Volume::unlink(InodeNumber parent, std::string_view name, const Caller& caller) {
  TRY(check_real(parent));
  return unless_made_up(parts_->names.unlink(parent, name, caller), parent, name);
}
bool Volume::rmdir_asks_pool(InodeNumber parent, std::string_view name) {
  return asks_before_removal(parent, name).has_value();
}
// The directory that is empty here and may have names on the pool.
std::optional<InodeNumber> Volume::asks_before_removal(InodeNumber parent,
                                                       std::string_view name) {
  if (!parts_->pool_listings || SyntheticTree::owns(parent)) return std::nullopt;
  return parts_->pool_listings->directory_at(parent, name, PoolListings::Here::kEmpty);
}
bool Volume::rename_asks_pool(InodeNumber parent, std::string_view name) {
  return parts_->pool_listings && !SyntheticTree::owns(parent) &&
         parts_->pool_listings->directory_at(parent, name, PoolListings::Here::kAny);
}
Result<void> Volume::rmdir(InodeNumber parent, std::string_view name, AskPool ask) {
  TRY(check_real(parent));
  const auto directory =
      ask == AskPool::kYes ? asks_before_removal(parent, name) : std::nullopt;
  if (directory && TRY(parts_->pool_listings->has_names(*directory)))
    return fail(ENOTEMPTY, "directory");
  return unless_made_up(parts_->names.rmdir(parent, name), parent, name);
}
Result<void> Volume::keep_safe(InodeNumber parent, std::string_view name) {
  const std::optional<DentryRecord> source =
      TRY(parts_->core.catalog.find_dentry(parent, name));
  return source ? parts_->files.keep_safe(source->inode) : Result<void>{};
}
Result<void> Volume::rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                            std::string_view new_name, unsigned flags, const Caller& caller) {
  if (rename_asks_pool(parent, name))
    parts_->pool_listings->look_before_move(parent, name, new_parent, new_name);
  return rename(parent, name, new_parent, new_name, flags, caller,
                rename_waits_for_disk(parent, name, new_parent, new_name, flags));
}
Result<void> Volume::rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                            std::string_view new_name, unsigned flags, const Caller& caller,
                            bool waits) {
  TRY(check_real(parent));
  TRY(check_real(new_parent, new_name));
  if (!waits)
    return unless_made_up(
        parts_->names.rename(parent, name, new_parent, new_name, flags, caller), parent, name);
  TRY(keep_safe(parent, name));
  if ((flags & RENAME_EXCHANGE) != 0) TRY(keep_safe(new_parent, new_name));
  TRY(unless_made_up(parts_->names.rename(parent, name, new_parent, new_name, flags, caller),
                     parent, name));
  return parts_->core.catalog.sync();
}
Result<std::string> Volume::read_link(InodeNumber inode) {
  if (SyntheticTree::owns(inode)) return parts_->synthetic.read_link(inode);
  std::string target = TRY(parts_->names.read_link(inode));
  parts_->note_read(inode);
  return target;
}
bool Volume::list_asks_pool(InodeNumber directory, std::uint64_t after_cookie) {
  return parts_->pool_listings && after_cookie == 0 && !SyntheticTree::owns(directory) &&
         parts_->pool_listings->is_wanted(directory);
}
Result<void> Volume::list(InodeNumber directory, std::uint64_t after_cookie, bool plus,
                          const std::function<bool(const ListedEntry&)>& visit,
                          const Caller& caller, AskPool ask) {
  if (SyntheticTree::owns(directory))
    return parts_->synthetic.list(directory, after_cookie, caller, visit);
  if (after_cookie == 0) parts_->note_read(directory);
  if (!parts_->pool_listings)
    return parts_->names.list(directory, after_cookie, plus, visit, caller);
  PoolListings& listings = *parts_->pool_listings;
  if (after_cookie == 0) listings.forget(directory);
  if (ask == AskPool::kYes && list_asks_pool(directory, after_cookie))
    listings.begin(directory);
  bool wants_more = true;
  if (after_cookie < PoolListings::kFirstCookie) {
    // What is made here since is shown as a name of the pool, if it is one.
    const std::uint64_t end = listings.end_of(directory);
    TRY(parts_->names.list(
        directory, after_cookie, plus,
        [&](const ListedEntry& entry) {
          return entry.entry.cookie < end && (wants_more = visit(entry));
        },
        caller));
  }
  return wants_more ? listings.list(directory, after_cookie, visit) : Result<void>{};
}

OpenedDirectory Volume::open_directory(InodeNumber directory, const Caller& caller) {
  // Names come and go on the pool without a word, and with the blocks that `.kvcachefs` shows.
  if (SyntheticTree::owns(directory) || parts_->pool_listings) return {};
  const OpenedDirectory opened = parts_->directories.open(directory, caller);
  // The kernel takes a listing that it answers for no use of the directory.
  if (opened.is_unseen && parts_->note_read(directory) && parts_->core.notifications != nullptr)
    parts_->core.notifications->invalidate_attributes_at_once(directory);
  return opened;
}
void Volume::release_directory(OpenDirectory& directory) {
  parts_->directories.release(directory);
}
bool Volume::begin_listing(OpenDirectory& directory, std::uint64_t after_cookie) {
  return parts_->directories.begin_listing(directory, after_cookie);
}
void Volume::await_listing_begin(OpenDirectory& directory) {
  parts_->directories.await_listing_begin(directory);
}
ListingEnd Volume::end_listing(OpenDirectory& directory) {
  return parts_->directories.end_listing(directory);
}
ListingEnd Volume::await_listing_end(OpenDirectory& directory) {
  return parts_->directories.await_listing_end(directory);
}
void Volume::synced_directory(OpenDirectory& directory) {
  parts_->directories.synced(directory);
}
void Volume::listing_dropped(InodeNumber directory, std::uint64_t ticket) {
  parts_->core.listings.dropped(directory, ticket);
}

Result<AttributesReply> Volume::attributes(InodeNumber inode, const OpenFile* file,
                                           const Caller& caller) {
  if (SyntheticTree::owns(inode)) return parts_->synthetic.attributes(inode);
  return parts_->attributes.attributes(inode, file, caller);
}
Result<AttributesReply> Volume::set_attributes(InodeNumber inode, const SetAttributes& change,
                                               OpenFile* file, const Caller& caller) {
  TRY(check_real(inode));
  return parts_->attributes.set_attributes(inode, change, file, caller);
}
bool Volume::xattr_waits(std::string_view name) noexcept { return name == kParentXattr; }
Result<void> Volume::set_xattr(InodeNumber inode, std::string_view name, std::string_view value,
                               int flags, const Caller& caller) {
  TRY(check_real(inode));
  return parts_->attributes.set_xattr(inode, name, value, flags, caller);
}
bool Volume::xattr_is_sought(std::string_view name) noexcept {
  return name.starts_with(kOwnXattrs);
}
Result<std::string> Volume::get_xattr(InodeNumber inode, std::string_view name,
                                      const Caller& caller) {
  if (SyntheticTree::owns(inode)) return fail(ENODATA, "xattr");
  return parts_->attributes.get_xattr(inode, name, caller);
}
Result<std::string> Volume::list_xattrs(InodeNumber inode, const Caller& caller) {
  if (SyntheticTree::owns(inode)) return std::string{};
  return parts_->attributes.list_xattrs(inode, caller);
}
Result<void> Volume::remove_xattr(InodeNumber inode, std::string_view name,
                                  const Caller& caller) {
  TRY(check_real(inode));
  return parts_->attributes.remove_xattr(inode, name, caller);
}

Result<Opened> Volume::open(InodeNumber inode, int flags, const Caller& caller,
                            OpenCheck check) {
  return parts_->files.open(inode, flags, caller, check);
}
Result<OpenCost> Volume::open_cost(InodeNumber inode, int flags) {
  return parts_->files.open_cost(inode, flags);
}
Result<Created> Volume::create(InodeNumber parent, std::string_view name, mode_t mode,
                               int flags, const Caller& caller) {
  TRY(check_real(parent, name));
  return parts_->files.create(parent, name, mode, flags, caller);
}
Result<Created> Volume::make_tmpfile(InodeNumber parent, mode_t mode, int flags,
                                     const Caller& caller) {
  TRY(check_real(parent));
  return parts_->files.make_tmpfile(parent, mode, flags, caller);
}
Result<std::size_t> Volume::read(OpenFile& file, std::span<std::byte> out,
                                 std::uint64_t offset) {
  return parts_->files.read(file, out, offset);
}
bool Volume::read_waits(const OpenFile& file, std::size_t size, std::uint64_t offset) const {
  return file.arriving != nullptr && !file.arriving->has(offset, size);
}
std::size_t Volume::disks() const noexcept { return parts_->core.devices->indices(); }
Result<std::optional<std::uint32_t>> Volume::disk_of(InodeNumber inode) {
  const InodePtr found = TRY(parts_->core.table.get(inode));
  if (!found->is_file()) return std::optional<std::uint32_t>{};
  // While its lock is held it may be waited for.
  if (const std::int64_t disk = found->disk.load(std::memory_order_relaxed); disk >= 0)
    return std::optional(static_cast<std::uint32_t>(disk));
  const auto lock = TRY(lock_to_look(*found));
  if (!parts_->core.devices->of(*found).ok()) return std::optional<std::uint32_t>{};
  return found->device;
}
Result<std::optional<std::uint32_t>> Volume::disk_of(InodeNumber parent,
                                                     std::string_view name) {
  if (SyntheticTree::owns(parent)) return std::optional<std::uint32_t>{};
  const auto dentry = TRY(parts_->core.catalog.find_dentry(parent, name));
  return dentry ? disk_of(dentry->inode) : std::optional<std::uint32_t>{};
}
std::optional<std::uint32_t> Volume::disk_of(const OpenFile& file) const noexcept {
  return parts_->core.devices->index_of(file.tier);
}
bool Volume::is_stuck(std::uint32_t disk) const noexcept {
  const Devices& devices = *parts_->core.devices;
  return devices.stalled(disk) > 0 || devices.silent(disk) > 0;
}
void Volume::refused_write(const OpenFile& file, bool is_seen) noexcept {
  file.inode->refused_object.store(file.object);
  if (!is_seen) file.inode->torn_object.store(file.object);
}
std::optional<std::uint32_t> Volume::disk_to_wait_for(const OpenFile& from,
                                                      const OpenFile& to) const noexcept {
  const auto written = disk_of(to);
  return written && is_stuck(*written) ? written : disk_of(from);
}
Result<std::size_t> Volume::write(OpenFile& file, std::span<const std::byte> data,
                                  std::uint64_t offset, const Caller& caller) {
  return parts_->files.write(file, data, offset, caller);
}
Result<void> Volume::flush(OpenFile& file, const Caller& caller) {
  return parts_->files.flush(file, caller);
}
void Volume::had_flags(OpenFile& file, int last) noexcept { file.had_flags(last); }
void Volume::release(OpenFile& file) { parts_->files.release(file); }
bool Volume::release_at_once(OpenFile& file) { return parts_->files.release_at_once(file); }
Result<void> Volume::fsync(OpenFile& file, bool data_only, const Caller& caller) {
  return parts_->files.fsync(file, data_only, caller);
}
Result<void> Volume::fsync_directory(InodeNumber /*directory*/) {
  return parts_->core.catalog.sync();
}
bool Volume::syncs_on_pool() const noexcept {
  return parts_->publisher.has_value() && parts_->core.is_publishing &&
         parts_->core.options.pool_options.syncs;
}
Result<void> Volume::sync_on_pool(InodeNumber number,
                                  std::chrono::steady_clock::time_point called,
                                  const std::function<bool()>& gives_up) {
  Parts& parts = *parts_;
  return kvcachefs::sync_on_pool(parts.core, number, called,
                                 {.hurry = [&parts] { parts.hurry_to_pool(); },
                                  .is_up = [this] { return is_pool_up(); },
                                  .gives_up = gives_up});
}
Result<void> Volume::fallocate(OpenFile& file, int mode, std::uint64_t offset,
                               std::uint64_t length, const Caller& caller) {
  return parts_->files.fallocate(file, mode, offset, length, caller);
}
Result<std::uint64_t> Volume::seek(OpenFile& file, std::uint64_t offset, int whence) {
  return parts_->files.seek(file, offset, whence);
}
Result<std::uint64_t> Volume::copy_range(OpenFile& from, std::uint64_t from_offset,
                                         OpenFile& to, std::uint64_t to_offset,
                                         std::uint64_t length, const Caller& caller) {
  return parts_->files.copy_range(from, from_offset, to, to_offset, length, caller);
}
Result<FlushCost> Volume::flush_cost(const OpenFile& file, bool waits_for_room) const {
  return parts_->files.flush_cost(file, waits_for_room);
}
void Volume::wait_for_room(const OpenFile& file, std::chrono::steady_clock::time_point called) {
  parts_->files.wait_for_room(file, called);
}
bool Volume::waits_for_disk(InodeNumber new_parent, std::string_view new_name) {
  return !SyntheticTree::owns(new_parent) &&
         parts_->core.knowledge.is_kept_at(new_parent, new_name);
}
bool Volume::rename_waits_for_disk(InodeNumber parent, std::string_view name,
                                   InodeNumber new_parent, std::string_view new_name,
                                   unsigned flags) {
  return waits_for_disk(new_parent, new_name) ||
         ((flags & RENAME_EXCHANGE) != 0 && waits_for_disk(parent, name));
}

void Volume::set_scrub_rate(std::uint64_t bytes_per_second) {
  parts_->scrubber.set_rate(bytes_per_second);
}

// What the budget holds, and as free what is or can be made free: who cleans a directory when its disk
// looks full then leaves that to us.
Result<struct statvfs> Volume::statfs(InodeNumber inode) {
  constexpr std::uint64_t kBlock = 4096;
  struct statvfs sum {};
  sum.f_bsize = kBlock;
  sum.f_frsize = kBlock;
  sum.f_namemax = 255;
  std::uint64_t budget = 0;
  std::uint64_t stuck = 0;
  Core& core = parts_->core;
  for (std::size_t i = 0; i < core.devices->count(); ++i) {
    const DeviceState state = core.devices->state(core.devices->index_at(i));
    if (state == DeviceState::kLost) continue;
    const struct statvfs below = TRY(core.devices->tiers()[i]->space());
    const DeviceRoom seen = core.budget.room_on(core.devices->index_at(i));
    const UsageSums now = core.budget.usage().on(core.devices->index_at(i));
    std::uint64_t size =
        seen.room.budget > 0 ? seen.room.budget : below.f_blocks * below.f_frsize;
    if (state != DeviceState::kWell) {
      // What is there is all that it will hold.
      size = std::min(size, now.all());
      budget += size;
      stuck += size;
      continue;
    }
    budget += size;
    stuck += std::min(size, now.open + now.kept + now.live);
    sum.f_files += below.f_files;
    sum.f_ffree += below.f_ffree;
    sum.f_favail += below.f_favail;
  }
  std::uint64_t left = budget - stuck;
  if (const std::optional<Tenant> tenant = TRY(parts_->tenant_of(inode));
      tenant && tenant->terms.quota) {
    const TenantUse use = core.budget.usage().by_tenant()[tenant->slot];
    budget = std::min(budget, *tenant->terms.quota);
    left = std::min(left, budget - std::min(budget, use.stays()));
  }
  sum.f_blocks = budget / kBlock;
  sum.f_bfree = left / kBlock;
  sum.f_bavail = sum.f_bfree;
  return sum;
}

Result<Explanation> Volume::explain(std::string_view path) {
  return kvcachefs::explain(parts_->core, path);
}
Result<EvictPage> Volume::evict(std::string_view path) {
  return evict_path(parts_->core, path);
}
Result<EvictPage> Volume::evict_in(InodeNumber directory, std::uint64_t after) {
  return evict_directory(parts_->core, directory, after);
}

Result<Flush> Volume::flush(std::string_view path, const FlushPoint& since) {
  Core& core = parts_->core;
  Sealer& sealer = parts_->sealer;
  const bool is_first = since.before == 0;
  Flush out{.since = since,
            .unsealed = {},
            .has_pool = parts_->publisher.has_value(),
            .publishes = parts_->publisher.has_value() && core.is_publishing,
            .unflushed = {}};
  if (is_first) {
    out.since = {.before = core.catalog.coming_id(),
                 .opened = core.write_opens.load(),
                 .sync = sealer.want_sync()};
  }
  // A file that was closed since the last look waits for no end of a burst either.
  sealer.hurry();
  out.unsealed = TRY(count_unsealed(core, path, out.since));
  // After the count: a seal that it has seen is one of these until it is on the disk.
  out.is_syncing = sealer.unsynced() > 0 || !sealer.is_synced(out.since.sync);
  // One that failed is tried again.
  if (out.is_syncing) sealer.want_sync();
  out.poisoned = core.counters.poisoned.load();
  if (!out.publishes) return out;
  if (is_first) parts_->publisher->wake();
  out.unflushed = TRY(count_unflushed(core, path, out.since.before));
  out.unflushed.skipped = parts_->publisher->skipped();
  out.unflushed.obstructed = parts_->publisher->obstructed();
  out.unflushed.stopped_for = parts_->publisher->stopped_for();
  return out;
}

bool Volume::is_pool_up() const {
  const PoolService* pool = parts_->core.options.pool;
  return pool != nullptr && pool->is_usable();
}

std::optional<PoolCounts> Volume::pool_counts() const {
  if (!parts_->pool_files) return std::nullopt;
  PoolCounts counts = parts_->pool_files->counts();
  parts_->publisher->add_counts(counts);
  if (parts_->pool_evictor) parts_->pool_evictor->add_counts(counts);
  return counts;
}

VolumeCounts Volume::counts() const {
  const Counters& counters = parts_->core.counters;
  const Leases::Counts leases = parts_->core.budget.leases().counts(monotonic_now());
  const order::LearnerSizes order = parts_->core.knowledge.learner().sizes();
  return VolumeCounts{.inodes_cached = parts_->core.table.size(),
                      .open_files = counters.open_files.load(),
                      .unsealed = counters.unsealed.load(),
                      .sealed_total = counters.sealed_total.load(),
                      .poisoned = counters.poisoned.load(),
                      .damaged = counters.damaged.load(),
                      .lost = counters.lost.load(),
                      .leases = leases.leases,
                      .leased_bytes = leases.bytes,
                      .leases_ended_early = leases.ended_early,
                      .opens_refused = parts_->core.budget.open_bytes().refused(),
                      .slowed = parts_->core.budget.slowed(),
                      .orphan_bytes = parts_->core.budget.usage().by_tenant()[kOrphans].all(),
                      .unreadable = counters.unreadable.load(),
                      .changed_on_purpose = counters.changed_on_purpose.load(),
                      .verified_opens = parts_->verifier.verified_opens(),
                      .verified_bytes = parts_->verifier.verified_bytes(),
                      .scrubbed_bytes = parts_->scrubber.scrubbed_bytes(),
                      .scrub_pass_end_s = parts_->scrubber.pass_end_s(),
                      .staged = parts_->stager.counts(),
                      .lookups = parts_->core.knowledge.lookups().settled(),
                      .evicted_plain = counters.evicted_plain.load(),
                      .duplicates = counters.duplicates.load(),
                      .duplicates_of_other_size = counters.duplicates_of_other_size.load(),
                      .catalog_memory_bytes = parts_->core.catalog.memory_bytes(),
                      .blocks = order.stored,
                      .order_bytes = order.bytes,
                      .order_dropped = order.not_learned,
                      .invisible_calls = parts_->core.knowledge.invisible_calls(),
                      .blocks_behind = parts_->core.knowledge.is_behind()};
}
std::vector<Use> Volume::uses() const { return parts_->core.knowledge.uses().uses(); }
std::vector<TenantReport> Volume::tenants() const { return tenant_reports(parts_->core); }
double Volume::stalled_seconds(std::size_t device) const {
  const Devices& devices = *parts_->core.devices;
  return static_cast<double>(devices.stalled(devices.index_at(device))) / kNanosPerSecond;
}
double Volume::silent_seconds(std::size_t device) const {
  const Devices& devices = *parts_->core.devices;
  return static_cast<double>(devices.silent(devices.index_at(device))) / kNanosPerSecond;
}
double Volume::state_stalled_seconds() const {
  return static_cast<double>(parts_->core.catalog.stalled()) / kNanosPerSecond;
}
bool Volume::is_stalled() const {
  return parts_->core.devices->any_stalled() || parts_->core.catalog.stalled() > 0;
}
DropCounts Volume::drop_counts() const { return parts_->core.drops.counts(); }
const RecoveryReport& Volume::recovery() const noexcept { return parts_->recovery; }
const std::vector<std::unique_ptr<Tier>>& Volume::devices() const noexcept {
  return parts_->core.devices->tiers();
}
std::optional<std::uint64_t> Volume::objects_on(std::size_t device) const {
  Core& core = parts_->core;
  return core.catalog.object_count().on(core.devices->index_at(device));
}
DeviceState Volume::device_state(std::size_t device) const {
  return parts_->core.devices->state(parts_->core.devices->index_at(device));
}
DeviceRoom Volume::room_on(std::size_t device) const {
  return parts_->core.budget.room_on(parts_->core.devices->index_at(device));
}
const order::Learner& Volume::order() const noexcept {
  return parts_->core.knowledge.learner();
}

}  // namespace kvcachefs
