// Lookup, listing and making of names; removal is in remove.cc, rename in rename.cc.
#include "fs/names/namespace.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>

#include "backend/base/log.h"
#include "backend/base/raise_to.h"
#include "fs/acl/acl.h"
#include "fs/life/checked_status.h"
#include "fs/life/drop.h"
#include "fs/life/obstacle.h"
#include "fs/life/states.h"
#include "fs/names/credentials.h"
#include "fs/names/read_times.h"
#include "fs/node/attributes.h"
#include "fs/pool/queued_directory.h"

namespace kvcachefs {
namespace {

// A listing reads this many dentries at a time, so a directory's size costs no memory.
constexpr std::size_t kListBatch = 256;
constexpr std::uint64_t kDotCookie = 1;
constexpr std::uint64_t kDotDotCookie = 2;
constexpr std::size_t kLongestName = 255;

std::uint8_t type_of(mode_t mode) { return static_cast<std::uint8_t>(IFTODT(mode)); }

}  // namespace

Result<void> check_name(std::string_view name) {
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos) {
    return fail(EINVAL, "not a name");
  }
  if (name.size() > kLongestName) return fail(ENAMETOOLONG, "name");
  return {};
}

Result<Entry> Namespace::entry_of(const InodePtr& inode, const Caller* user) {
  std::optional<struct stat> backing;
  if (inode->is_file()) TRY(take_back_if_failed(core_, *inode));
  if (inode->is_file()) backing = TRY(checked_status(core_, *inode));
  Entry entry;
  entry.inode = inode->number;
  bool is_leased = false;
  const auto show = [&](const InodeRecord& record) {
    entry.generation = record.generation;
    entry.attributes = merge_attributes(inode->number, record, backing ? &*backing : nullptr);
    ReadTimes::show(*inode, entry.attributes);
    entry.attribute_timeout_s = attribute_timeout(*inode);
  };
  if (inode->type == S_IFDIR) {
    show(inode->shown());
  } else {
    const auto lock = TRY(lock_to_look(*inode));
    if (inode->is_going()) return fail(ENOENT, "about to go");
    if (user != nullptr && backing)
      is_leased = core_.budget.answered(*inode, *backing, user->uid);
    show(inode->record);
  }
  entry.entry_timeout_s = kEntryTimeout;
  if (inode->is_file())
    entry.entry_timeout_s =
        is_leased ? std::min(kEntryTimeout, core_.budget.longest_timeout_s()) : kBlockTimeout;
  stop_refusing();
  core_.table.add_lookup(inode);
  return entry;
}

Result<Entry> Namespace::entry_without_waiting(const InodePtr& inode) {
  const RefusesToWait here;
  return entry_of(inode);
}

Result<Entry> Namespace::entry_made(InodeNumber parent, const InodePtr& inode) {
  Result<Entry> entry = entry_of(inode);
  if (!entry.ok()) const KernelListings::Change change(core_.listings, parent);
  if (!entry.ok()) return miss_or_error(core_, *inode, entry.error(), ENOENT);
  return entry;
}

Result<InodeNumber> Namespace::parent_of(InodeNumber directory) {
  if (directory == kRootInode) return kRootInode;
  const std::vector<std::pair<InodeNumber, std::string>> links =
      TRY(core_.catalog.list_links(directory, 1));
  if (links.empty()) return fail(ESTALE, "a directory without a name");
  return links.front().first;
}

Result<Entry> Namespace::lookup(InodeNumber parent, std::string_view name, const Caller& caller,
                                double* miss_timeout_s) {
  if (miss_timeout_s != nullptr) *miss_timeout_s = native_.miss_timeout(parent);
  if (name == ".") {
    const InodePtr self = TRY(core_.table.get(parent));
    return entry_of(self);
  }
  if (name == "..") {
    const InodePtr above = TRY(core_.table.get(TRY(parent_of(parent))));
    return entry_of(above);
  }
  if (name.size() > kLongestName) return fail(ENAMETOOLONG, "name");
  const std::optional<DentryRecord> dentry = TRY(core_.catalog.find_dentry(parent, name));
  const NameLook seen = core_.knowledge.look(parent, name);
  if (seen.must_wait) return fail(kMustWait, "its directory lies deep");
  const std::optional<BlockName>& block = seen.block;
  if ((block || seen.fan_out) && miss_timeout_s != nullptr) *miss_timeout_s = kBlockTimeout;
  if (!dentry) {
    if (block) core_.knowledge.looked_up(*block, caller.pid, false);
    if (seen.fan_out && !stands_for_a_block(parent))
      core_.knowledge.looked_up(*seen.fan_out, caller.pid, false);
    if (!core_.knowledge.missed(parent, name, seen, caller.pid) && miss_timeout_s != nullptr)
      *miss_timeout_s = 0;
    return fail(ENOENT, "no such name");
  }
  Result<InodePtr> inode = core_.table.get(dentry->inode);
  if (!inode.ok()) {
    if (inode.error().code != ESTALE) return inode.error();
    // Removed or evicted since.
    if (TRY(core_.catalog.find_dentry(parent, name)) != dentry) return fail(ENOENT, "removed");
    log_error("dentry without inode parent={} inode={}: run kvcachefs fsck", parent,
              dentry->inode);
    return fail(ENOENT, "no such inode");
  }
  std::optional<pid_t> writer;
  if (native_.holds(parent)) writer = TRY(writer_under_hash(**inode));
  if (writer && !is_same_process(caller, *writer)) {
    // It may be whole the next moment.
    if (miss_timeout_s != nullptr) *miss_timeout_s = 0;
    if (block) core_.knowledge.looked_up(*block, caller.pid, false);
    core_.knowledge.missed(parent, name, seen, caller.pid);
    return fail(ENOENT, "being written");
  }
  const bool is_block_there = seen.is_directory_of_block && (*inode)->type == S_IFDIR;
  if (is_block_there && !core_.knowledge.is_crawling(caller.pid) &&
      TRY(look_into(**inode, caller)))
    core_.knowledge.found(parent, name, seen, caller.pid);
  const bool wanted = (*inode)->is_file() && !core_.knowledge.is_crawling(caller.pid);
  Result<Entry> entry = entry_of(*inode, wanted ? &caller : nullptr);
  if (!entry.ok() && entry.error().code == kMustWait) return entry;
  if (!entry.ok() && entry.error().code == ETIMEDOUT) {
    // The disk may answer the next moment.
    if (miss_timeout_s != nullptr) *miss_timeout_s = 0;
    entry = miss_or_error(core_, **inode, entry.error(), ENOENT);
  }
  // What the kernel remembered of it would answer others, too, and they get a lease.
  if (entry.ok() && (*inode)->is_file() && !wanted)
    entry->entry_timeout_s = entry->attribute_timeout_s = 0;
  if (wanted && !block && entry.ok()) core_.budget.used(dentry->inode);
  if (block && (*inode)->is_file()) {
    if (!block->temporary) (*inode)->block.store(block->number, std::memory_order_relaxed);
    (*inode)->series.store(block->series, std::memory_order_relaxed);
    if (wanted && entry.ok()) entry->entry_timeout_s = kBlockTimeout;
    core_.knowledge.looked_up(*block, caller.pid, entry.ok());
    if (wanted && entry.ok() && !block->temporary && core_.on_found)
      core_.on_found(**inode, static_cast<std::uint64_t>(entry->attributes.st_size));
  }
  // A lease of its files outlasts it.
  if (entry.ok() && is_block_there) entry->entry_timeout_s = kBlockTimeout;
  if (entry.ok() && (writer || !native_.keeps(parent, name))) entry->entry_timeout_s = 0;
  if (!entry.ok())
    core_.knowledge.missed(parent, name, seen, caller.pid);
  else if ((*inode)->is_file())
    core_.knowledge.found(parent, name, seen, caller.pid);
  return entry;
}

// The directory of a block was found: that is a look at the block. Its files go together
// (fs/budget/siblings.h), so that a lease of one keeps all. An empty one is being filled.
Result<bool> Namespace::look_into(Inode& directory, const Caller& caller) {
  constexpr std::size_t kFirst = 4;
  for (const DirEntry& entry :
       TRY(core_.catalog.list_directory(directory.number, kDotDotCookie, kFirst))) {
    if (entry.type != DT_REG) continue;
    const Result<InodePtr> file = core_.table.get(entry.inode);
    if (!file.ok() && file.error().code == ESTALE) continue;
    if (!file.ok()) return file.error();
    const Result<struct stat> backing = checked_status(core_, **file);
    if (!backing.ok()) return miss_or_error(core_, **file, backing.error(), ENOENT);
    const NameLook seen = core_.knowledge.look(directory.number, entry.name);
    const auto lock = TRY(lock_to_look(**file));
    if ((*file)->is_going()) return fail(ENOENT, "about to go");
    core_.budget.answered(**file, *backing, caller.uid);
    if (seen.block) core_.knowledge.looked_up(*seen.block, caller.pid, true);
    return true;
  }
  return false;
}

// Lookups say that it is not there, so who makes it anew must not find it.
Result<void> Namespace::finish_drop(InodeNumber parent, std::string_view name) {
  const std::optional<DentryRecord> standing = TRY(core_.catalog.find_dentry(parent, name));
  if (!standing) return {};
  const InodePtr inode = core_.table.find(standing->inode);
  if (inode == nullptr) return {};
  DropReason reason = DropReason::kRoom;
  int failed_with = 0;  // a rewrite of what is there still
  {
    const std::lock_guard lock(inode->mutex);
    if (!inode->is_going()) return {};
    // Who makes it anew changes what was there before: the kernel looks again, and finds it.
    if (TRY(take_back_failed(core_, *inode)))
      return fail(ESTALE, "what a rewrite was to replace is there again");
    if (!inode->evicting) reason = drop_reason_of(inode->write_errno);
    if (!inode->evicting && inode->record.previous_object != kNoObject)
      failed_with = inode->write_errno;
  }
  // It is back when nobody has the failed one open any more.
  if (failed_with != 0 &&
      obstacle_by_policy(TRY(note_policy(core_, *inode))) != Obstacle::kNone)
    return fail(failed_with, "its rewriting has failed, and somebody has that open still");
  return drop_names(core_, inode->number, reason);
}

// A directory without a block: what is looked up in it belongs to the store that makes it.
bool Namespace::stands_for_a_block(InodeNumber directory) {
  const InodePtr inode = core_.table.find(directory);
  return inode != nullptr && inode->absent.load() != 0;
}

// Lookups of a block have ended at the first directory of its path that was not there; each that is made
// hands that on to what is first made in it. The caller holds both locks.
void Namespace::hand_absence_on(Inode& directory, const Made& made, const NameLook& seen,
                                Unfound at_name) {
  if (made.inode->type == S_IFDIR) {
    const Unfound above = directory.unfound.exchange({});
    made.inode->unfound.store(above.is_any() ? above.with(at_name) : at_name);
  }
  if (seen.fan_out) {
    const std::uint64_t absent = directory.absent.exchange(0);
    made.inode->absent.store(absent != 0 ? absent : seen.fan_out->number);
  } else if (made.block && directory.absent.load() != 0) {
    core_.knowledge.became(directory.absent.exchange(0), made.block->number);
  }
}

Result<Namespace::Made> Namespace::make(InodeNumber parent, std::string_view name,
                                        const NewInode& what, const Caller& caller) {
  const bool nameless = name.empty();
  if (!nameless) TRY(check_name(name));
  const InodePtr directory = TRY(core_.table.get(parent));
  if (!nameless) TRY(finish_drop(parent, name));
  TRY(core_.knowledge.check_depth(parent, S_ISDIR(what.mode)));
  const InodeNumber number = TRY(core_.catalog.next_id());
  const UnixNanos now = file_clock_now();
  InodeRecord record;
  record.uid = caller.uid;
  record.gid = caller.gid;
  record.rdev = static_cast<std::uint64_t>(what.rdev);
  record.nlink = nameless ? 0 : S_ISDIR(what.mode) ? 2 : 1;
  record.atime = record.mtime = record.ctime = record.btime = now;
  record.target = what.target;
  record.state = what.state;
  if (S_ISREG(what.mode)) record.writer = core_.knowledge.writer_of(caller.pid);
  Edit edit;
  Made made;
  NameLook seen;
  if ((S_ISREG(what.mode) || S_ISDIR(what.mode)) && !nameless)
    seen = core_.knowledge.look(parent, name, caller.uid);
  Unfound ended;
  if (S_ISDIR(what.mode))
    ended = core_.knowledge.making_directory(parent, name, seen, caller.pid);
  else if (!nameless)
    core_.knowledge.making_file(parent, name, seen, caller.pid);
  made.is_kept = core_.options.keep_by_default;
  // What has no name is its directory's tenant's: any name there says whose that is.
  if (S_ISREG(what.mode) && nameless && core_.knowledge.tenants().had_any())
    seen.tenant = core_.knowledge.look(parent, "O_TMPFILE").tenant;
  if (S_ISREG(what.mode) && !nameless) {
    made.block = seen.block;
    made.is_kept = seen.is_kept;
  }
  made.is_directory_of_block = S_ISDIR(what.mode) && seen.is_directory_of_block;
  if (S_ISREG(what.mode) && core_.budget.is_over_quota(seen.tenant))
    return fail(EDQUOT, "over its quota");
  if (S_ISREG(what.mode)) {
    record.object = TRY(core_.catalog.next_id());
    made.copy = TRY(core_.devices->create_copy(record.object));
    edit.make_object(
        record.object,
        ObjectRecord{
            .inode = number, .device = made.copy.device, .chunk_crc32c = {}, .sealed = {}});
    if (is_unsealed(record.state)) edit.put_unsealed(number);
    if (record.state == DataState::kPublished) {
      struct stat backing {};
      if (::fstat(made.copy.fd.get(), &backing) != 0)
        return fail_errno("status of a backing file");
      record.stamp = stamp_of(backing);
    }
  }
  const auto undo = [&](const Error& error) {
    if (S_ISREG(what.mode)) {
      // Nothing refers to it; if this fails too, the next start or fsck finds it.
      static_cast<void>(core_.devices->remove_copy(made.copy.device, record.object).ok());
    }
    return error;
  };
  const std::lock_guard lock(directory->mutex);
  if (directory->record.nlink == 0) return undo(fail(ENOENT, "the directory was removed"));
  record.mode = static_cast<std::uint32_t>(what.mode);
  if (S_ISREG(what.mode) && native_.is_hash(parent, name)) record.flags |= kInodeFirstWriter;
  if ((directory->record.mode & S_ISGID) != 0) {
    record.gid = directory->record.gid;
    if (S_ISDIR(what.mode)) record.mode |= S_ISGID;
  }
  if (S_ISLNK(what.mode)) {
    record.mode = S_IFLNK | 0777;
  } else if (const Result<void> set =
                 inherit_mode(core_.catalog, *directory, number, record, caller.umask, edit);
             !set.ok()) {
    return undo(set.error());
  }
  if (const Result<void> may = core_.budget.metadata().check({}, record); !may.ok())
    return undo(may.error());
  InodeRecord directory_next;
  if (nameless) {
    edit.put_orphan_inode(number);
  } else {
    const Result<std::optional<DentryRecord>> standing =
        core_.catalog.find_dentry(parent, name);
    if (!standing.ok()) return undo(standing.error());
    if (standing->has_value()) return undo(fail(EEXIST, "name"));
    const Result<std::uint64_t> cookie = core_.catalog.next_id();
    if (!cookie.ok()) return undo(cookie.error());
    edit.put_dentry(
        parent, name,
        DentryRecord{.inode = number, .type = type_of(record.mode), .cookie = *cookie});
    if (S_ISREG(what.mode)) core_.knowledge.put_rows(edit, parent, name, number, seen);
    directory_next = touched(directory->record, now, S_ISDIR(what.mode) ? 1 : 0);
    edit.put_inode(parent, directory_next);
  }
  edit.put_inode(number, record);
  // One that is made with its first block goes to the pool with that (DirectoryDescriber).
  if (S_ISDIR(what.mode) && core_.is_publishing && !seen.fan_out)
    edit.put_to_publish(number, kQueuedDirectory);
  // Before the reaper can see it: an orphan that nobody has in memory is his.
  if (nameless) made.inode = core_.table.insert(number, record);
  if (const Result<void> committed = core_.catalog.commit(std::move(edit)); !committed.ok())
    return undo(committed.error());
  if (!nameless) {
    directory->set_record(std::move(directory_next));
    native_.changed(parent, name, S_ISDIR(what.mode) ? number : 0);
  }
  count_unsealed(core_, DataState::kNone, record.state);
  core_.budget.metadata().changed({}, record);
  if (!nameless) made.inode = core_.table.insert(number, std::move(record));
  // Its number is greater than the directory's, whose lock is held.
  const std::lock_guard inode_lock(made.inode->mutex);
  if (S_ISREG(what.mode)) {
    made.inode->device = made.copy.device;
    made.inode->tenant.store(seen.tenant, std::memory_order_relaxed);
    core_.budget.made(*made.inode);
  }
  if (made.block) {
    made.inode->block.store(made.block->number, std::memory_order_relaxed);
    made.inode->series.store(made.block->series, std::memory_order_relaxed);
    made.inode->being_stored.store(!made.block->temporary, std::memory_order_relaxed);
  }
  made.inode->creator = caller.pid;
  if (!nameless) hand_absence_on(*directory, made, seen, ended);
  if (!nameless && S_ISREG(what.mode)) core_.knowledge.got_file(*directory, name, seen);
  return made;
}

Result<Entry> Namespace::make_node(InodeNumber parent, std::string_view name, mode_t mode,
                                   dev_t rdev, const Caller& caller) {
  const DataState state = S_ISREG(mode) ? DataState::kPublished : DataState::kNone;
  const Made made = TRY(
      make(parent, name, {.mode = mode, .rdev = rdev, .target = {}, .state = state}, caller));
  if (S_ISREG(mode) && core_.on_unwritten) core_.on_unwritten(made.inode->number);
  if (S_ISDIR(mode) && core_.is_publishing && core_.on_pool_work) core_.on_pool_work();
  Entry entry = TRY(entry_made(parent, made.inode));
  if (made.block) {
    core_.knowledge.store_began(made.block->number, caller.pid);
    core_.knowledge.store_done(*made.inode);
    entry.entry_timeout_s = kBlockTimeout;
  }
  if (made.is_directory_of_block) entry.entry_timeout_s = kBlockTimeout;
  if (!native_.keeps(parent, name)) entry.entry_timeout_s = 0;
  return entry;
}

Result<Entry> Namespace::make_symlink(InodeNumber parent, std::string_view name,
                                      std::string_view target, const Caller& caller) {
  if (target.empty()) return fail(ENOENT, "empty symlink");
  if (target.size() >= PATH_MAX) return fail(ENAMETOOLONG, "symlink");
  const Made made =
      TRY(make(parent, name,
               {.mode = S_IFLNK | 0777, .rdev = 0, .target = target, .state = DataState::kNone},
               caller));
  Entry entry = TRY(entry_made(parent, made.inode));
  if (!native_.keeps(parent, name)) entry.entry_timeout_s = 0;
  return entry;
}

Result<std::string> Namespace::read_link(InodeNumber number) {
  const InodePtr inode = TRY(core_.table.get(number));
  const auto lock = TRY(lock_to_look(*inode));
  if (!S_ISLNK(inode->record.mode)) return fail(EINVAL, "not a symlink");
  return inode->record.target;
}

Result<void> Namespace::list(InodeNumber directory, std::uint64_t after, bool plus,
                             const std::function<bool(const ListedEntry&)>& visit,
                             const Caller& caller) {
  if (after < kDotCookie) core_.knowledge.listed(caller.pid);
  // A process that makes names while it lists them would not come to an end. Listings have no
  // state of their own: the one that began last sets the end for all. Of two that begin at the
  // same time the slower one may have the lower end, and takes nothing from the other.
  std::uint64_t end = 0;
  {
    const InodePtr inode = TRY(core_.table.get(directory));
    if (after < kDotCookie) raise_to(inode->listing_end, core_.catalog.coming_id());
    const std::uint64_t set = inode->listing_end.load();
    end = set != 0 ? set : UINT64_MAX;
  }
  if (after < kDotCookie) {
    if (!visit(
            {.entry = {.cookie = kDotCookie, .inode = directory, .type = DT_DIR, .name = "."},
             .plus = {}}))
      return {};
    after = kDotCookie;
  }
  if (after < kDotDotCookie) {
    const Result<InodeNumber> above = parent_of(directory);
    const InodeNumber number = above.ok() ? *above : directory;
    if (!visit(
            {.entry = {.cookie = kDotDotCookie, .inode = number, .type = DT_DIR, .name = ".."},
             .plus = {}}))
      return {};
    after = kDotDotCookie;
  }
  while (true) {
    const std::vector<DirEntry> entries =
        TRY(core_.catalog.list_directory(directory, after, kListBatch));
    for (const DirEntry& entry : entries) {
      if (entry.cookie >= end) return {};
      ListedEntry listed{.entry = entry, .plus = {}};
      // Of a file the name alone: what the kernel remembered of it would answer who looks it up.
      if (plus && entry.type != DT_REG) {
        // One that somebody changes, which lasts as long as a disk takes no writes, is listed
        // by its name alone: a listing is served by a thread that everybody's requests come by.
        bool is_miss = true;
        const Result<InodePtr> inode = core_.table.get(entry.inode);
        if (inode.ok()) {
          const Result<Entry> found = entry_without_waiting(*inode);
          is_miss = !found.ok() && found.error().code != kMustWait;
          if (found.ok()) {
            listed.plus = *found;
            // What is still being written under its hash is there for its writer only.
            listed.plus->entry_timeout_s = native_.holds(directory) ? 0 : kListedTimeout;
          }
        }
        if (is_miss) {
          after = entry.cookie;
          continue;
        }
      }
      if (!visit(listed)) {
        if (listed.plus) core_.table.forget(entry.inode, 1);
        return {};
      }
      after = entry.cookie;
    }
    if (entries.size() < kListBatch) return {};
  }
}

}  // namespace kvcachefs
