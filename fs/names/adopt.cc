// Names that others have put on the pool.
#include <dirent.h>

#include "fs/life/drop_directory.h"
#include "fs/names/namespace.h"
#include "fs/node/attributes.h"

namespace kvcachefs {

Result<void> Namespace::adopt(InodeNumber parent, std::string_view name, const Adoption& what) {
  TRY(check_name(name));
  const InodePtr directory = TRY(core_.table.get(parent));
  const bool is_directory = S_ISDIR(what.mode);
  const InodeNumber number = TRY(core_.catalog.next_id());
  const UnixNanos now = file_clock_now();
  InodeRecord record;
  record.mode = static_cast<std::uint32_t>(what.mode);
  record.uid = what.uid;
  record.gid = what.gid;
  record.nlink = is_directory ? 2 : 1;
  record.atime = record.mtime = record.ctime = record.btime = now;
  if (!is_directory) {
    record.state = DataState::kRemote;
    record.stamp = {.size = what.copy.size, .mtime = what.copy.mtime, .ctime = now};
    if (native_.is_hash(parent, name)) record.flags |= kInodeFirstWriter;
  }
  const NameLook seen = core_.knowledge.look(parent, name);
  const std::lock_guard lock(directory->mutex);
  if (directory->record.nlink == 0) return fail(ENOENT, "the directory was removed");
  if (TRY(core_.catalog.find_dentry(parent, name))) return fail(EEXIST, "name");
  Edit edit;
  edit.put_dentry(parent, name,
                  DentryRecord{.inode = number,
                               .type = static_cast<std::uint8_t>(IFTODT(what.mode)),
                               .cookie = TRY(core_.catalog.next_id())});
  if (!is_directory) core_.knowledge.put_rows(edit, parent, name, number, seen);
  InodeRecord directory_next = touched(directory->record, now, is_directory ? 1 : 0);
  edit.put_inode(parent, directory_next);
  edit.put_inode(number, record);
  edit.put_pool_copy(number, what.copy);
  TRY(core_.catalog.commit(std::move(edit)));
  directory->set_record(std::move(directory_next));
  native_.changed(parent, name, is_directory ? number : 0);
  if (is_directory) return {};
  // It can go like others, whether or not somebody looks it up who wants it.
  if (seen.block && !seen.block->temporary) {
    core_.knowledge.stored(seen.block->number);
  } else {
    core_.budget.used_as(number, seen.tenant);
  }
  return {};
}

Result<void> Namespace::drop_directory(Inode& directory, const PoolCopy& copy) {
  const auto leaves = [this, &copy](const Inode& inode, Edit& edit) -> Result<bool> {
    const auto standing = TRY(core_.catalog.find_pool_copy(inode.number));
    if (!standing || !standing->is_same_file(copy)) return false;
    // This node makes it there anew.
    if (TRY(core_.catalog.is_to_publish(inode.number))) return false;
    edit.remove_pool_copy(inode.number, *standing);
    return true;
  };
  if (const auto gone = TRY(drop_empty_directory(core_, directory.number, leaves))) {
    native_.changed(gone->first, gone->second, 0);
    return {};
  }
  const std::lock_guard lock(directory.mutex);
  Edit edit;
  if (copy.fileid == 0 || !TRY(leaves(directory, edit))) return {};
  // Its next file says whose it is, and who looks it up asks what stands there.
  edit.put_pool_copy(directory.number, {.fileid = 0, .path_hash = copy.path_hash});
  return core_.catalog.commit(std::move(edit));
}

}  // namespace kvcachefs
