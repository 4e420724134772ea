// Rename: the commit of a runtime's store.
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>

#include "fs/life/states.h"
#include "fs/names/namespace.h"

namespace kvcachefs {
namespace {

// What a rename changes; the records are copies until the commit.
struct Changes {
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
    for (auto& [inode, record] : records) {
      count_unsealed(core, inode->record.state, record.state);
      inode->record = std::move(record);
    }
    return {};
  }
};

// A rename of a file that was never published publishes it, in the same commit: a crash shows
// either neither or both.
Result<void> publish_with(Core& core, Inode& inode, Changes& changes, Edit& edit) {
  if ((inode.record.flags & kInodePoisoned) != 0) return fail(EIO, "its writing failed");
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
              Inode& from_dir, UnixNanos now, Changes& changes, Edit& edit) {
  edit.remove_dentry(from_dir.number, name, source);
  InodeRecord& gone = changes.of(second);
  --gone.nlink;
  gone.ctime = now;
  if (gone.nlink == 0) edit.put_orphan_inode(second.number);
  changes.of(from_dir) = touched(changes.of(from_dir), now, 0);
}

}  // namespace

// The kernel believes that the second copy is under the hash now, and that the first one has lost a
// name. Both locks are held.
void Namespace::came_second(Inode& second, const Inode& first, const NewName& hash,
                            bool was_in_prefix) {
  native_.note_second(core_.counters, hash.name, first.record.stamp.size,
                      second.record.stamp.size);
  if (second.record.nlink == 0) {
    second.came_second.store(true, std::memory_order_release);
    core_.table.let_go(second);
  }
  if (core_.notifications == nullptr) return;
  core_.notifications->invalidate_attributes(first.number);
  core_.notifications->invalidate_attributes(second.number);
  // It does not keep a name of prefix/ (NativeMap::keeps), and looks again for one that is
  // stale. What is neither it must be told; not more often than that, for the message waits for the
  // directory.
  if (second.record.nlink > 0 && !was_in_prefix)
    core_.notifications->invalidate_entry(hash.parent, std::string(hash.name));
}

Result<void> Namespace::rename(InodeNumber parent, std::string_view name,
                               InodeNumber new_parent, std::string_view new_name,
                               unsigned flags, const Caller& caller) {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0)
    return fail(EINVAL, "rename flags");
  TRY(check_name(new_name));
  const InodePtr from_dir = TRY(core_.table.get(parent));
  const InodePtr to_dir = TRY(core_.table.get(new_parent));
  for (int round = 0; round < kMostRounds; ++round) {
    if (TRY(try_rename(from_dir, name, to_dir, new_name, flags, caller))) return {};
  }
  return fail(EBUSY, "the names keep changing");
}

Result<bool> Namespace::try_rename(const InodePtr& from_dir, std::string_view name,
                                   const InodePtr& to_dir, std::string_view new_name,
                                   unsigned flags, const Caller& caller) {
  const std::optional<DentryRecord> source =
      TRY(core_.catalog.find_dentry(from_dir->number, name));
  const std::optional<DentryRecord> target =
      TRY(core_.catalog.find_dentry(to_dir->number, new_name));
  if (!source) return fail(ENOENT, "no such name");
  const bool exchange = (flags & RENAME_EXCHANGE) != 0;
  if (exchange && !target) return fail(ENOENT, "no such name");
  if (target && (flags & RENAME_NOREPLACE) != 0) return fail(EEXIST, "name");
  const InodePtr moved = TRY(core_.table.get(source->inode));
  InodePtr replaced;
  if (target) replaced = TRY(core_.table.get(target->inode));
  if (moved == replaced && !exchange) return true;
  if (replaced != nullptr && replaced->is_file() && native_.is_hash(to_dir->number, new_name)) {
    // A first copy that is lost or damaged goes now, and does not stand in the way.
    const Result<struct stat> first = checked_status(core_, *replaced);
    if (!first.ok() && first.error().code == ENOENT) return false;
  }

  Knowledge& knowledge = core_.knowledge;
  const auto block_at = [&](const InodePtr& inode, InodeNumber directory,
                            std::string_view its_name) {
    return inode->is_file() ? knowledge.block_of(directory, its_name) : std::nullopt;
  };
  const std::optional<BlockName> block = block_at(moved, to_dir->number, new_name);
  std::optional<BlockName> back;
  if (exchange) back = block_at(replaced, from_dir->number, name);
  std::uint64_t gone_source = 0;
  std::uint64_t gone_target = 0;

  bool replaced_object = false;
  {
    const LockedInodes locked({from_dir.get(), to_dir.get(), moved.get(), replaced.get()});
    if (TRY(core_.catalog.find_dentry(from_dir->number, name)) != source) return false;
    if (TRY(core_.catalog.find_dentry(to_dir->number, new_name)) != target) return false;
    if (to_dir->record.nlink == 0) return fail(ENOENT, "the directory was removed");
    if (target && !exchange) {
      if (is_directory(*replaced) && !is_directory(*moved)) return fail(EISDIR, "target");
      if (!is_directory(*replaced) && is_directory(*moved)) return fail(ENOTDIR, "target");
      if (is_directory(*replaced) && !TRY(core_.catalog.directory_empty(replaced->number)))
        return fail(ENOTEMPTY, "target");
    }
    // A prefix file stays what it is: the first copy that was published (fs/names/native_map.h).
    const bool hash = native_.is_hash(to_dir->number, new_name);
    if (exchange && (hash || native_.is_hash(from_dir->number, name)))
      return fail(EEXIST, "a prefix file");
    const bool stands = hash && target && replaced->is_file() &&
                        replaced->record.state != DataState::kUnpublished;
    if (stands && !moved->is_file()) return fail(EEXIST, "a prefix file");
    const UnixNanos now = file_clock_now();
    Changes changes;
    changes.records.reserve(4);
    Edit edit;
    replaced_object = moved->record.previous_object != kNoObject;
    TRY(publish_with(core_, *moved, changes, edit));
    if (stands) {
      give_way(*moved, name, *source, *from_dir, now, changes, edit);
      gone_source = TRY(knowledge.remove_rows(edit, from_dir->number, name));
      TRY(changes.commit(core_, std::move(edit)));
      came_second(*moved, *replaced, {to_dir->number, new_name},
                  native_.holds(from_dir->number));
      knowledge.removed(gone_source);
      // Whoever computed it anew may want it soon.
      if (block) knowledge.stored(block->number);
      if (replaced_object && core_.on_orphan_object) core_.on_orphan_object();
      return true;
    }
    if (hash && moved->is_file()) changes.of(*moved).flags |= kInodeFirstWriter;
    if (exchange) TRY(publish_with(core_, *replaced, changes, edit));
    changes.of(*moved).ctime = now;
    for (Inode* directory : {from_dir.get(), to_dir.get()})
      changes.of(*directory) = touched(changes.of(*directory), now, 0);

    edit.remove_dentry(from_dir->number, name, *source);
    if (target) edit.remove_dentry(to_dir->number, new_name, *target);
    gone_source = TRY(knowledge.remove_rows(edit, from_dir->number, name));
    if (target) gone_target = TRY(knowledge.remove_rows(edit, to_dir->number, new_name));
    if (exchange) {
      changes.of(*replaced).ctime = now;
      edit.put_dentry(from_dir->number, name,
                      {.inode = target->inode, .type = target->type, .cookie = source->cookie});
      edit.put_dentry(to_dir->number, new_name,
                      {.inode = source->inode, .type = source->type, .cookie = target->cookie});
      if (is_directory(*moved) != is_directory(*replaced)) {
        const bool to_gains = is_directory(*moved);
        changes.of(to_gains ? *to_dir : *from_dir).nlink += 1;
        changes.of(to_gains ? *from_dir : *to_dir).nlink -= 1;
      }
    } else {
      // A replaced name keeps its place in the listing: who replaces each name while he lists
      // them comes to an end.
      edit.put_dentry(to_dir->number, new_name,
                      {.inode = source->inode,
                       .type = source->type,
                       .cookie = target ? target->cookie : TRY(core_.catalog.next_id())});
      if (is_directory(*moved)) {
        changes.of(*from_dir).nlink -= 1;
        changes.of(*to_dir).nlink += 1;
      }
      if (target) {
        InodeRecord& gone = changes.of(*replaced);
        if (is_directory(*replaced)) {
          gone.nlink = 0;
          changes.of(*to_dir).nlink -= 1;
        } else {
          --gone.nlink;
        }
        gone.ctime = now;
        if (gone.nlink == 0) edit.put_orphan_inode(replaced->number);
      }
    }
    if (block) knowledge.put_rows(edit, to_dir->number, new_name, moved->number, *block);
    if (back) knowledge.put_rows(edit, from_dir->number, name, replaced->number, *back);
    if (is_directory(*moved)) Knowledge::put_unread(edit, moved->number);
    if (exchange && is_directory(*replaced)) Knowledge::put_unread(edit, replaced->number);
    TRY(changes.commit(core_, std::move(edit)));
    native_.changed(from_dir->number, name, exchange ? directory_or_none(*replaced) : 0);
    native_.changed(to_dir->number, new_name, directory_or_none(*moved));
    // A copy that was still being written under its hash.
    if (hash && target && replaced->is_file() && !exchange)
      native_.note_second(core_.counters, new_name, 0, 0);
  }
  if (is_directory(*moved) || (exchange && is_directory(*replaced))) knowledge.places_changed();
  if (!back || back->number != gone_source) knowledge.removed(gone_source);
  if (!block || block->number != gone_target) knowledge.removed(gone_target);
  if (block && !block->temporary) knowledge.named(*moved, block->number, caller.pid);
  if (back && !back->temporary) knowledge.named(*replaced, back->number, caller.pid);
  if (replaced_object && core_.on_orphan_object) core_.on_orphan_object();
  return true;
}

}  // namespace kvcachefs
