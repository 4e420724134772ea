#include "fs/life/drop_directory.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/base/clock.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"

namespace kvcachefs {

Result<void> drop_block_directory(Core& core, InodeNumber directory) {
  // Such directories are known where somebody has said so.
  if (core.is_pooled || !core.catalog.is_told() ||
      !TRY(core.catalog.directory_empty(directory)))
    return {};
  const auto links = TRY(core.catalog.list_links(directory, 1));
  if (links.empty()) return {};
  const auto& [parent, name] = links.front();
  if (!core.knowledge.look(parent, name).is_directory_of_block) return {};
  const Result<InodePtr> inode = core.table.get(directory);
  const Result<InodePtr> holder = core.table.get(parent);
  for (const auto* found : {&inode, &holder})
    if (!found->ok())
      return found->error().code == ESTALE ? Result<void>{} : Result<void>(found->error());
  const LockedInodes locked({inode->get(), holder->get()});
  const std::optional<DentryRecord> dentry = TRY(core.catalog.find_dentry(parent, name));
  // Renamed, or filled again, meanwhile.
  if (!dentry || dentry->inode != directory || !TRY(core.catalog.directory_empty(directory)))
    return {};
  InodeRecord next = (*inode)->record;
  next.nlink = 0;
  next.ctime = file_clock_now();
  InodeRecord holder_next = touched((*holder)->record, next.ctime, -1);
  Edit edit;
  edit.set_frees();
  edit.remove_dentry(parent, name, *dentry);
  edit.put_orphan_inode(directory);
  edit.put_inode(parent, holder_next);
  const KernelListings::Change change(core.listings, parent);
  TRY(commit_record(core, **inode, std::move(next), std::move(edit)));
  (*holder)->set_record(std::move(holder_next));
  core.knowledge.tenants().remove(directory);
  if (core.notifications != nullptr) core.notifications->invalidate_entry(parent, name);
  return {};
}

}  // namespace kvcachefs
