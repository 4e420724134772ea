// Rename: the commit of a runtime's store.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>

#include "backend/base/clock.h"
#include "fs/life/check_kept.h"
#include "fs/life/checked_status.h"
#include "fs/life/states.h"
#include "fs/names/credentials.h"
#include "fs/names/namespace.h"
#include "fs/node/attributes.h"
#include "fs/pool/queued_directory.h"

namespace kvcachefs {

// What a rename changes; the records are copies until the commit.
struct RenameChanges {
  std::vector<std::pair<Inode*, InodeRecord>> records;

  InodeRecord& of(Inode& inode) {
    for (auto& [known, record] : records) {
      if (known == &inode) return record;
    }
    return records.emplace_back(&inode, inode.record).second;
  }
  Result<void> commit(Core& core, Edit&& edit) {
    for (const auto& [inode, record] : records) edit.put_inode(inode->number, record);
    TRY(core.catalog.commit(std::move(edit)));
    for (auto& [inode, record] : records) store_record(core, *inode, std::move(record));
    return {};
  }
};

namespace {

// A rename of a file that was never published publishes it, in the same commit: a crash shows
// either neither or both.
Result<void> publish_with(Core& core, Inode& inode, RenameChanges& changes, Edit& edit) {
  TRY(check_publishable(core, inode));
  if (!is_unsealed(inode.record.state)) return {};
  Tier* tier = TRY(core.devices->of(inode));
  const struct stat backing = TRY(tier->status(inode.record.object));
  return prepare_publication(core, inode.number, changes.of(inode), backing, edit);
}

bool is_directory(const Inode& inode) { return inode.type == S_IFDIR; }

InodeNumber directory_or_none(const Inode& inode) {
  return is_directory(inode) ? inode.number : 0;
}

// The hash has its file already, and keeps it: the second copy loses this name and nothing else
// changes.
void give_way(Inode& second, const std::string_view name, const DentryRecord& source,
              Inode& from_dir, UnixNanos now, RenameChanges& changes, Edit& edit) {
  edit.remove_dentry(from_dir.number, name, source);
  InodeRecord& gone = changes.of(second);
  --gone.nlink;
  gone.ctime = now;
  if (gone.nlink == 0) edit.put_orphan_inode(second.number);
  changes.of(from_dir) = touched(changes.of(from_dir), now, 0);
}

// The pool has said a moment ago that nothing is in the directory, and nothing of this node has come there since: then it is
// removed there, and made under its new name. What others put there in between stays there. The caller holds the locks.
Result<bool> is_empty_there(Core& core, const Inode& directory) {
  constexpr std::int64_t kHolds = 5'000'000'000;  // nanoseconds
  constexpr std::size_t kMostLooked = 1024;
  const std::int64_t found = directory.empty_on_pool.load(std::memory_order_relaxed);
  if (found == 0 || monotonic_now() - found > kHolds) return false;
  const auto entries = TRY(core.catalog.list_directory(directory.number, 0, kMostLooked));
  if (entries.size() == kMostLooked) return false;
  for (const DirEntry& entry : entries)
    if (TRY(core.catalog.find_pool_copy(entry.inode))) return false;
  return true;
}

// What other nodes have below a directory cannot be moved in one step, and neither can bytes that are not here: tools
// copy then.
Result<void> check_movable(Core& core, const Inode& inode,
                           const std::optional<SharedName>& shared) {
  if (!core.is_pooled) return {};
  if (inode.record.state == DataState::kRemote) return fail(EXDEV, "on the pool alone");
  if (!is_directory(inode)) return {};
  const bool is_there = TRY(core.catalog.find_pool_copy(inode.number)).has_value();
  if (!is_there && !(shared && core.may_be_on_pool(*shared))) return {};
  if (TRY(is_empty_there(core, inode))) return {};
  return is_there ? fail(EXDEV, "a directory of the pool")
                  : fail(EXDEV, "the directory may be on the pool");
}

// The kernel checks the sticky bit, but only of names that it knows: one that is being written
// under its hash is a miss to others, and what has come from the pool since its last look is
// none to it.
Result<void> check_sticky(Inode& directory, Inode& replaced, const Caller& caller) {
  {
    const std::lock_guard lock(directory.mutex);
    const InodeRecord& record = directory.record;
    if ((record.mode & S_ISVTX) == 0 || record.uid == caller.uid) return {};
  }
  {
    const std::lock_guard lock(replaced.mutex);
    if (replaced.record.uid == caller.uid) return {};
  }
  if (has_capability(caller, CAP_FOWNER)) return {};
  return fail(EPERM, "somebody else's name in a sticky directory");
}

// The block that a name stands for after the commit, 0: none.
std::uint64_t block_at(const InodePtr& inode, const NameLook& seen) {
  const bool is_block = inode->is_file() && seen.block && !seen.block->temporary;
  return is_block ? seen.block->number : 0;
}

}  // namespace

// The kernel believes that the second copy is under the hash now, and that the first one has lost a
// name. Both locks are held.
void Namespace::came_second(Inode& second, const Inode& first, const NewName& hash,
                            bool was_in_prefix) {
  native_.note_second(core_.counters, hash.name, first.record.stamp.size,
                      second.record.stamp.size);
  if (second.record.nlink == 0) {
    second.disowned.store(true, std::memory_order_release);
    core_.table.let_go(second);
  }
  if (core_.notifications == nullptr) return;
  core_.notifications->invalidate_attributes_at_once(first.number);
  core_.notifications->invalidate_attributes_at_once(second.number);
  // It does not keep a name of prefix/ (NativeMap::keeps), and looks again for one that is
  // stale. What is neither it must be told; not more often than that, for the message waits for the
  // directory.
  if (second.record.nlink > 0 && !was_in_prefix)
    core_.notifications->invalidate_entry(hash.parent, std::string(hash.name));
}

// One try: what stands under both names, and what the commit will do.
struct Namespace::Renaming {
  const InodePtr& from_dir;
  const std::string_view name;
  const InodePtr& to_dir;
  const std::string_view new_name;
  const bool exchange;
  const bool whiteout;  // a device 0:0 takes the source's name
  const Caller& caller;

  DentryRecord source = {};
  std::optional<DentryRecord> target = {};
  InodePtr moved = {};
  InodePtr replaced = {};  // null without a target
  // Of files; `moved` and, in an exchange, `replaced` are taken for what these say.
  NameLook at_source = {};
  NameLook at_target = {};
  // The directories' tenants.
  TenantSlot source_tenant = 0;
  TenantSlot target_tenant = 0;
  std::optional<SharedName> shared_source = {};
  std::optional<SharedName> shared_target = {};

  bool to_hash = false;  // a prefix file in the making
  UnixNanos now = 0;
  RenameChanges changes = {};
  Edit edit = {};
  std::optional<InodeRecord> hider = {};  // the whiteout's
  bool replaced_object = false;
  // Blocks that lost their names; 0: none.
  std::uint64_t gone_source = 0;
  std::uint64_t gone_target = 0;

  [[nodiscard]] bool moves_directories() const {
    return is_directory(*moved) || (exchange && is_directory(*replaced));
  }
};

Result<void> Namespace::rename(InodeNumber parent, std::string_view name,
                               InodeNumber new_parent, std::string_view new_name,
                               unsigned flags, const Caller& caller) {
  constexpr unsigned kKnown = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
  const bool exchange = (flags & RENAME_EXCHANGE) != 0;
  const bool whiteout = (flags & RENAME_WHITEOUT) != 0;
  if ((flags & ~kKnown) != 0 || (exchange && whiteout)) return fail(EINVAL, "rename flags");
  TRY(check_name(new_name));
  const InodePtr from_dir = TRY(core_.table.get(parent));
  const InodePtr to_dir = TRY(core_.table.get(new_parent));
  for (int round = 0; round < kMostRounds; ++round) {
    Renaming call{.from_dir = from_dir,
                  .name = name,
                  .to_dir = to_dir,
                  .new_name = new_name,
                  .exchange = exchange,
                  .whiteout = whiteout,
                  .caller = caller};
    const Result<void> found = find_both(call, (flags & RENAME_NOREPLACE) != 0);
    // What stood there was evicted between two looks.
    if (!found.ok() && found.error().code == ESTALE && round + 1 < kMostRounds) continue;
    TRY(found);
    core_.knowledge.making_file(new_parent, new_name, call.at_target, caller.pid);
    core_.knowledge.making_file(parent, name, call.at_source, caller.pid);
    if (call.moved == call.replaced && !call.exchange) return {};
    TRY(core_.knowledge.check_depth(new_parent, is_directory(*call.moved)));
    if (call.exchange) TRY(core_.knowledge.check_depth(parent, is_directory(*call.replaced)));
    if (call.replaced != nullptr) TRY(check_sticky(*call.to_dir, *call.replaced, caller));
    if (call.replaced != nullptr && call.replaced->is_file() &&
        native_.is_hash(new_parent, new_name)) {
      // A first copy that is lost or damaged goes now, and does not stand in the way.
      const Result<struct stat> first = checked_status(core_, *call.replaced);
      if (!first.ok() && first.error().code == ENOENT) continue;
    }
    std::optional<Knowledge::PlaceChange> places;
    if (call.moves_directories()) places.emplace(core_.knowledge);
    const Outcome outcome = TRY(commit_rename(call));
    if (outcome == Outcome::kChanged) continue;
    const bool is_gone =
        !call.exchange && call.replaced != nullptr && is_directory(*call.replaced);
    if (is_gone) core_.knowledge.tenants().remove(call.replaced->number);
    if (places && core_.catalog.is_told_policy()) core_.knowledge.told();
    if (places && core_.knowledge.tenants().had_any() && core_.on_policy_told)
      core_.on_policy_told();
    tell_stored(call, outcome == Outcome::kMoved, caller);
    if (call.moved->is_file()) core_.knowledge.got_file(*call.to_dir, new_name, call.at_target);
    if (call.replaced_object && core_.on_orphan_object) core_.on_orphan_object();
    if (core_.is_pooled && core_.on_pool_work) core_.on_pool_work();
    return {};
  }
  return fail(EBUSY, "the names keep changing");
}

Result<void> Namespace::find_both(Renaming& call, bool no_replace) {
  const auto source = TRY(core_.catalog.find_dentry(call.from_dir->number, call.name));
  call.target = TRY(core_.catalog.find_dentry(call.to_dir->number, call.new_name));
  if (!source) return fail(ENOENT, "no such name");
  if (call.exchange && !call.target) return fail(ENOENT, "no such name");
  if (call.target && no_replace) return fail(EEXIST, "name");
  call.source = *source;
  call.moved = TRY(core_.table.get(source->inode));
  if (call.target) call.replaced = TRY(core_.table.get(call.target->inode));
  const bool has_files =
      call.moved->is_file() || (call.replaced != nullptr && call.replaced->is_file());
  if (has_files || core_.knowledge.tenants().had_any()) {
    NameLook at_source = core_.knowledge.look(call.from_dir->number, call.name);
    NameLook at_target = core_.knowledge.look(call.to_dir->number, call.new_name);
    call.source_tenant = at_source.tenant;
    call.target_tenant = at_target.tenant;
    if (has_files) {
      call.at_source = std::move(at_source);
      call.at_target = std::move(at_target);
    }
  }
  call.shared_source = name_on_pool(call.from_dir->number, call.name);
  call.shared_target = name_on_pool(call.to_dir->number, call.new_name);
  return {};
}

Result<Namespace::Outcome> Namespace::commit_rename(Renaming& call) {
  const InodeNumber from = call.from_dir->number;
  const InodeNumber to = call.to_dir->number;
  Inode& moved = *call.moved;
  Inode* const replaced = call.replaced.get();
  const LockedInodes locked({call.from_dir.get(), call.to_dir.get(), &moved, replaced});
  if (TRY(core_.catalog.find_dentry(from, call.name)) != call.source) return Outcome::kChanged;
  if (TRY(core_.catalog.find_dentry(to, call.new_name)) != call.target)
    return Outcome::kChanged;
  if (call.to_dir->record.nlink == 0) return fail(ENOENT, "the directory was removed");
  if (replaced != nullptr && !call.exchange) {
    if (is_directory(*replaced) && !is_directory(moved)) return fail(EISDIR, "target");
    if (!is_directory(*replaced) && is_directory(moved)) return fail(ENOTDIR, "target");
    if (is_directory(*replaced) && !TRY(core_.catalog.directory_empty(replaced->number)))
      return fail(ENOTEMPTY, "target");
  }
  // A prefix file stays what it is: the first copy that was published (fs/names/native_map.h).
  call.to_hash = native_.is_hash(to, call.new_name);
  if (call.exchange && (call.to_hash || native_.is_hash(from, call.name)))
    return fail(EEXIST, "a prefix file");
  const bool stands = call.to_hash && replaced != nullptr && replaced->is_file() &&
                      replaced->record.state != DataState::kUnpublished &&
                      !replaced->is_going();
  if (stands && (!moved.is_file() || call.whiteout)) return fail(EEXIST, "a prefix file");

  // A miss already, to whoever looks.
  if (moved.evicting || (call.exchange && replaced->evicting))
    return fail(ENOENT, "being evicted");
  TRY(check_movable(core_, moved, call.shared_source));
  if (!stands) TRY(check_tenants(call));
  // What others have put into the directory that is to be replaced would stay there.
  if (call.exchange || (replaced != nullptr && is_directory(*replaced)))
    TRY(check_movable(core_, *replaced, call.shared_target));

  call.now = file_clock_now();
  call.changes.records.reserve(4);
  call.replaced_object = moved.record.previous_object != kNoObject;
  TRY(publish_with(core_, moved, call.changes, call.edit));
  if (stands) {
    give_way(moved, call.name, call.source, *call.from_dir, call.now, call.changes, call.edit);
  } else {
    TRY(move_names(call));
  }
  TRY(put_block_rows(call, !stands));
  TRY(put_on_pool(call, !stands));
  // The kernel does not know that the listing of a directory that moves has another "..".
  std::optional<KernelListings::Change> has_moved;
  std::optional<KernelListings::Change> has_moved_back;
  if (from != to && is_directory(moved)) has_moved.emplace(core_.listings, moved.number);
  if (from != to && call.exchange && is_directory(*replaced))
    has_moved_back.emplace(core_.listings, replaced->number);
  TRY(call.changes.commit(core_, std::move(call.edit)));
  if (call.hider) core_.budget.metadata().changed({}, *call.hider);
  tell_gone(call, !stands);
  if (stands) {
    came_second(moved, *replaced, {to, call.new_name}, native_.holds(from));
    return Outcome::kCameSecond;
  }
  note_tenant(moved, call.at_target.tenant);
  if (call.exchange) note_tenant(*replaced, call.at_source.tenant);
  native_.changed(from, call.name, call.exchange ? directory_or_none(*replaced) : 0);
  native_.changed(to, call.new_name, directory_or_none(moved));
  // A copy that was still being written under its hash.
  if (call.to_hash && replaced != nullptr && replaced->is_file())
    native_.note_second(core_.counters, call.new_name, 0, 0);
  return Outcome::kMoved;
}

// A file that must stay has to fit where it goes. Nobody has counted the files below a
// directory: one of a tenant that keeps files goes to no other, as in ext4's project quotas;
// who moves it copies then (mv(1) does), file by file. The caller holds the locks.
Result<void> Namespace::check_tenants(const Renaming& call) {
  if (call.source_tenant == call.target_tenant) return {};
  const TenantUses uses = core_.budget.usage().by_tenant();
  const bool keeps =
      uses[call.source_tenant].kept > 0 || (call.exchange && uses[call.target_tenant].kept > 0);
  if (keeps && call.moves_directories()) return fail(EXDEV, "a directory between tenants");
  TRY(check_moved(core_, *call.moved, call.target_tenant));
  return call.exchange ? check_moved(core_, *call.replaced, call.source_tenant)
                       : Result<void>{};
}

// Whose a file is says its first name. The caller holds its lock.
void Namespace::note_tenant(Inode& inode, TenantSlot tenant) {
  if (!inode.is_file() || inode.record.nlink != 1 || !core_.knowledge.tenants().had_any())
    return;
  inode.tenant.store(tenant, std::memory_order_relaxed);
  core_.budget.noted(inode);
}

// By this an overlayfs, of which the mount is the upper layer, hides the name of the lower one
// (Documentation/filesystems/overlayfs.rst, "whiteouts and opaque directories").
Result<void> Namespace::put_whiteout(Renaming& call) {
  const InodeNumber number = TRY(core_.catalog.next_id());
  const InodeRecord& directory = call.from_dir->record;
  InodeRecord record;
  record.mode = S_IFCHR;
  record.uid = call.caller.uid;
  record.gid = (directory.mode & S_ISGID) != 0 ? directory.gid : call.caller.gid;
  record.nlink = 1;
  record.atime = record.mtime = record.ctime = record.btime = call.now;
  TRY(core_.budget.metadata().check({}, record));
  call.edit.put_inode(number, record);
  call.edit.put_dentry(
      call.from_dir->number, call.name,
      {.inode = number, .type = DT_CHR, .cookie = TRY(core_.catalog.next_id())});
  call.hider = std::move(record);
  return {};
}

Result<void> Namespace::move_names(Renaming& call) {
  RenameChanges& changes = call.changes;
  Edit& edit = call.edit;
  Inode& moved = *call.moved;
  Inode* const replaced = call.replaced.get();
  const auto& target = call.target;
  if (call.to_hash && moved.is_file()) changes.of(moved).flags |= kInodeFirstWriter;
  changes.of(moved).ctime = call.now;
  for (Inode* directory : {call.from_dir.get(), call.to_dir.get()})
    changes.of(*directory) = touched(changes.of(*directory), call.now, 0);
  if (is_directory(moved)) {
    changes.of(*call.from_dir).nlink -= 1;
    changes.of(*call.to_dir).nlink += 1;
    Knowledge::put_unread(edit, moved);
  }
  edit.remove_dentry(call.from_dir->number, call.name, call.source);
  if (call.whiteout) TRY(put_whiteout(call));
  if (target) edit.remove_dentry(call.to_dir->number, call.new_name, *target);
  // A replaced name keeps its place in the listing: who replaces each name while he lists them
  // comes to an end.
  edit.put_dentry(call.to_dir->number, call.new_name,
                  {.inode = call.source.inode,
                   .type = call.source.type,
                   .cookie = target ? target->cookie : TRY(core_.catalog.next_id())});
  if (call.exchange) {
    TRY(publish_with(core_, *replaced, changes, edit));
    changes.of(*replaced).ctime = call.now;
    edit.put_dentry(
        call.from_dir->number, call.name,
        {.inode = target->inode, .type = target->type, .cookie = call.source.cookie});
    if (is_directory(*replaced)) {
      changes.of(*call.to_dir).nlink -= 1;
      changes.of(*call.from_dir).nlink += 1;
      Knowledge::put_unread(edit, *replaced);
    }
  } else if (target) {
    InodeRecord& gone = changes.of(*replaced);
    if (is_directory(*replaced)) {
      gone.nlink = 0;
      changes.of(*call.to_dir).nlink -= 1;
    } else {
      --gone.nlink;
    }
    gone.ctime = call.now;
    if (gone.nlink == 0) edit.put_orphan_inode(replaced->number);
  }
  return {};
}

// What leaves a name leaves the pool; what gets one is published under it.
Result<void> Namespace::put_on_pool(Renaming& call, bool moves) {
  if (!core_.is_pooled) return {};
  TRY(leave_pool(*call.moved, call.shared_source, call.edit));
  if (!moves) return {};
  const bool is_lost = call.replaced != nullptr && (call.exchange || !call.moved->is_file());
  if (is_lost) TRY(leave_pool(*call.replaced, call.shared_target, call.edit));
  if (!core_.is_publishing) return {};
  // What stands there is the new file's to replace, or to take away with its name.
  if (call.replaced != nullptr && !is_lost && call.shared_target) {
    const auto copy = TRY(core_.catalog.find_pool_copy(call.replaced->number));
    if (copy && copy->path_hash == call.shared_target->path_hash) {
      call.edit.remove_pool_copy(call.replaced->number, *copy);
      // Whose time is 0: none of its own bytes are there, whatever the record there says.
      PoolCopy taken_over = *copy;
      taken_over.mtime = 0;
      call.edit.put_pool_copy(call.moved->number, taken_over);
    }
  }
  const auto put_to_publish = [&call](const Inode& inode) {
    if (inode.is_file()) call.edit.put_to_publish(inode.number, inode.record.stamp.size);
    if (is_directory(inode)) call.edit.put_to_publish(inode.number, kQueuedDirectory);
  };
  put_to_publish(*call.moved);
  if (call.exchange) put_to_publish(*call.replaced);
  return {};
}

// `moves`: the names change hands; otherwise the source's goes and nothing else.
Result<void> Namespace::put_block_rows(Renaming& call, bool moves) {
  Knowledge& knowledge = core_.knowledge;
  const InodeNumber from = call.from_dir->number;
  const InodeNumber to = call.to_dir->number;
  const bool replaces_file = call.replaced != nullptr && call.replaced->is_file();
  if (call.moved->is_file())
    call.gone_source = TRY(knowledge.remove_rows(call.edit, from, call.name, call.at_source));
  if (!moves) return {};
  if (replaces_file)
    call.gone_target = TRY(knowledge.remove_rows(call.edit, to, call.new_name, call.at_target));
  if (call.moved->is_file())
    knowledge.put_rows(call.edit, to, call.new_name, call.moved->number, call.at_target);
  if (call.exchange && replaces_file)
    knowledge.put_rows(call.edit, from, call.name, call.replaced->number, call.at_source);
  return {};
}

// Under the locks: who makes one of the names anew is noted after this.
void Namespace::tell_gone(const Renaming& call, bool moved) {
  const std::uint64_t to = moved ? block_at(call.moved, call.at_target) : 0;
  const std::uint64_t back = call.exchange ? block_at(call.replaced, call.at_source) : 0;
  if (back != call.gone_source) core_.knowledge.removed(call.gone_source);
  if (to != call.gone_target) core_.knowledge.removed(call.gone_target);
}

// After the locks.
void Namespace::tell_stored(const Renaming& call, bool moved, const Caller& caller) {
  Knowledge& knowledge = core_.knowledge;
  if (!moved) {
    // Whoever computed it anew may want it soon.
    if (call.at_target.block) knowledge.stored(call.at_target.block->number);
    return;
  }
  const std::uint64_t to = block_at(call.moved, call.at_target);
  const std::uint64_t back = call.exchange ? block_at(call.replaced, call.at_source) : 0;
  if (to != 0) knowledge.named(*call.moved, to, caller.pid);
  if (to == 0 && call.moved->is_file())
    core_.budget.used_as(call.moved->number, call.moved->tenant.load());
  if (back != 0) knowledge.named(*call.replaced, back, caller.pid);
  if (back == 0 && call.replaced != nullptr && call.replaced->is_file()) {
    const std::lock_guard lock(call.replaced->mutex);
    // It is there still, under the other's name or one that it had before.
    if (call.replaced->record.nlink > 0) put_in_order(core_, *call.replaced);
  }
}

}  // namespace kvcachefs
