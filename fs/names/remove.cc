// The calls that add and take links: link, unlink, rmdir.
#include <dirent.h>
#include <fcntl.h>

#include "fs/life/states.h"
#include "fs/names/namespace.h"
#include "fs/node/attributes.h"

namespace kvcachefs {

Result<Entry> Namespace::link(InodeNumber number, InodeNumber new_parent,
                              std::string_view new_name, const Caller& caller) {
  TRY(check_name(new_name));
  const InodePtr inode = TRY(core_.table.get(number));
  const InodePtr directory = TRY(core_.table.get(new_parent));
  TRY(core_.knowledge.check_depth(new_parent, false));
  bool replaced_object = false;
  bool goes_to_pool = false;
  NameLook seen;
  if (inode->is_file()) seen = core_.knowledge.look(new_parent, new_name);
  core_.knowledge.making_file(new_parent, new_name, seen, caller.pid);
  const std::optional<BlockName>& block = seen.block;
  {
    const LockedInodes locked({inode.get(), directory.get()});
    if (directory->record.nlink == 0) return fail(ENOENT, "the directory was removed");
    if (S_ISDIR(inode->record.mode)) return fail(EPERM, "hard link to a directory");
    if (inode->evicting) return fail(ENOENT, "being evicted");
    if (inode->record.nlink >= kMostHardLinks) return fail(EMLINK, "links");
    if (TRY(core_.catalog.find_dentry(new_parent, new_name))) return fail(EEXIST, "name");
    if (inode->record.state == DataState::kUnpublished) TRY(check_publishable(core_, *inode));
    const UnixNanos now = file_clock_now();
    InodeRecord next = inode->record;
    Edit edit;
    if (next.state == DataState::kUnpublished) {
      Tier* tier = TRY(core_.devices->of(*inode));
      const struct stat backing = TRY(tier->status(next.object));
      replaced_object = next.previous_object != kNoObject;
      TRY(prepare_publication(core_, number, next, backing, edit));
    }
    if (next.nlink == 0) {
      // As vfs_link() (fs/namei.c): what was unlinked stays so; only O_TMPFILE makes a file for a link.
      if (TRY(core_.catalog.find_left_rows(number))) return fail(ENOENT, "an unlinked file");
      edit.remove_orphan_inode(number);
    }
    if (inode->is_file() && native_.is_hash(new_parent, new_name))
      next.flags |= kInodeFirstWriter;
    ++next.nlink;
    next.ctime = now;
    TRY(core_.budget.metadata().check(inode->record, next));
    edit.put_dentry(new_parent, new_name,
                    DentryRecord{.inode = number,
                                 .type = static_cast<std::uint8_t>(IFTODT(next.mode)),
                                 .cookie = TRY(core_.catalog.next_id())});
    if (inode->is_file()) core_.knowledge.put_rows(edit, new_parent, new_name, number, seen);
    // Its first name may be one that stays here.
    goes_to_pool = core_.is_publishing && next.state == DataState::kSealed &&
                   !TRY(core_.catalog.find_pool_copy(number));
    if (goes_to_pool) edit.put_to_publish(number, next.stamp.size);
    InodeRecord directory_next = touched(directory->record, now, 0);
    edit.put_inode(new_parent, directory_next);
    TRY(commit_record(core_, *inode, std::move(next), std::move(edit)));
    directory->set_record(std::move(directory_next));
    note_tenant(*inode, seen.tenant);
  }
  if (replaced_object && core_.on_orphan_object) core_.on_orphan_object();
  if (goes_to_pool && core_.on_pool_work) core_.on_pool_work();
  Entry entry = TRY(entry_made(new_parent, inode));
  if (block) {
    entry.entry_timeout_s = kBlockTimeout;
    if (!block->temporary) core_.knowledge.named(*inode, block->number, caller.pid);
  }
  if (!native_.keeps(new_parent, new_name)) entry.entry_timeout_s = 0;
  core_.knowledge.linked(new_parent, new_name, number);
  if (inode->is_file()) core_.knowledge.got_file(*directory, new_name, seen);
  return entry;
}

Result<void> Namespace::remove_name(InodeNumber parent, std::string_view name, bool directory,
                                    pid_t thread) {
  const InodePtr holder = TRY(core_.table.get(parent));
  for (int round = 0; round < kMostRounds; ++round) {
    const std::optional<DentryRecord> dentry = TRY(core_.catalog.find_dentry(parent, name));
    if (!dentry) return fail(ENOENT, "no such name");
    const InodePtr inode = TRY(core_.table.get(dentry->inode));
    NameLook seen;
    if (inode->is_file()) {
      seen = core_.knowledge.look(parent, name);
      core_.knowledge.making_file(parent, name, seen, thread);
    }
    const std::optional<SharedName> shared = name_on_pool(parent, name);
    const LockedInodes locked({inode.get(), holder.get()});
    if (TRY(core_.catalog.find_dentry(parent, name)) != dentry) continue;
    const bool is_directory = S_ISDIR(inode->record.mode);
    if (is_directory && !directory) return fail(EISDIR, "a directory");
    if (!is_directory && directory) return fail(ENOTDIR, "not a directory");
    if (directory && !TRY(core_.catalog.directory_empty(inode->number)))
      return fail(ENOTEMPTY, "directory");
    const UnixNanos now = file_clock_now();
    InodeRecord next = inode->record;
    next.nlink = directory ? 0 : next.nlink - 1;
    next.ctime = now;
    Edit edit;
    edit.set_frees();
    edit.remove_dentry(parent, name, *dentry);
    std::uint64_t block = 0;
    if (inode->is_file() && next.nlink == 0) {
      block = TRY(core_.knowledge.leave_rows(edit, inode->number, parent, name, seen));
    } else if (inode->is_file()) {
      block = TRY(core_.knowledge.remove_rows(edit, parent, name, seen));
    } else if (next.nlink == 0) {
      edit.put_orphan_inode(inode->number);
    }
    TRY(leave_pool(*inode, shared, edit));
    // Another of its names may be shared in its place.
    if (shared && core_.is_publishing && inode->is_file() && next.nlink > 0 &&
        next.state == DataState::kSealed)
      edit.put_to_publish(inode->number, next.stamp.size);
    InodeRecord holder_next = touched(holder->record, now, directory ? -1 : 0);
    edit.put_inode(parent, holder_next);
    TRY(commit_record(core_, *inode, std::move(next), std::move(edit)));
    holder->set_record(std::move(holder_next));
    core_.knowledge.removed(block);
    if (is_directory) core_.knowledge.tenants().remove(inode->number);
    native_.changed(parent, name, 0);
    if (block != 0 && inode->record.nlink > 0) put_in_order(core_, *inode);
    if (shared && core_.on_pool_work) core_.on_pool_work();
    return {};
  }
  return fail(EBUSY, "the name keeps changing");
}

std::optional<SharedName> Namespace::name_on_pool(InodeNumber parent, std::string_view name) {
  if (!core_.is_pooled) return std::nullopt;
  return shared_name(core_.knowledge, parent, name);
}

Result<void> Namespace::leave_pool(Inode& inode, const std::optional<SharedName>& name,
                                   Edit& edit) {
  if (!name) return {};
  const auto copy = TRY(core_.catalog.find_pool_copy(inode.number));
  if (!copy || copy->path_hash != name->path_hash) return {};
  edit.put_tombstone(name->path,
                     {.fileid = copy->fileid, .is_directory = inode.type == S_IFDIR});
  edit.remove_pool_copy(inode.number, *copy);
  return {};
}

Result<void> Namespace::unlink(InodeNumber parent, std::string_view name,
                               const Caller& caller) {
  return remove_name(parent, name, false, caller.pid);
}

Result<void> Namespace::rmdir(InodeNumber parent, std::string_view name) {
  return remove_name(parent, name, true, 0);
}

}  // namespace kvcachefs
