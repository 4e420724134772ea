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
  if (core.is_pooled || !core.catalog.is_told()) return {};
  const auto links = TRY(core.catalog.list_links(directory, 1));
  if (links.empty()) return {};
  const auto& [parent, name] = links.front();
  if (!core.knowledge.look(parent, name).is_directory_of_block) return {};
  TRY(drop_empty_directory(core, directory, [&](const Inode& inode, Edit&) -> Result<bool> {
    return TRY(core.catalog.list_links(inode.number, 1)) == links;
  }));
  return {};
}

Result<std::optional<DirectoryName>> drop_empty_directory(
    Core& core, InodeNumber directory,
    const std::function<Result<bool>(const Inode&, Edit&)>& may) {
  const std::optional<DirectoryName> none;
  if (!TRY(core.catalog.directory_empty(directory))) return none;
  const auto links = TRY(core.catalog.list_links(directory, 1));
  if (links.empty()) return none;
  const auto& [parent, name] = links.front();
  const Result<InodePtr> inode = core.table.get(directory);
  const Result<InodePtr> holder = core.table.get(parent);
  for (const auto* found : {&inode, &holder}) {
    if (!found->ok() && found->error().code == ESTALE) return none;
    if (!found->ok()) return found->error();
  }
  const LockedInodes locked({inode->get(), holder->get()});
  const std::optional<DentryRecord> dentry = TRY(core.catalog.find_dentry(parent, name));
  // Renamed, or filled again, meanwhile.
  if (!dentry || dentry->inode != directory || !TRY(core.catalog.directory_empty(directory)))
    return none;
  Edit edit;
  if (!TRY(may(**inode, edit))) return none;
  InodeRecord next = (*inode)->record;
  next.nlink = 0;
  next.ctime = file_clock_now();
  InodeRecord holder_next = touched((*holder)->record, next.ctime, -1);
  edit.set_frees();
  edit.remove_dentry(parent, name, *dentry);
  edit.put_orphan_inode(directory);
  edit.put_inode(parent, holder_next);
  const KernelListings::Change change(core.listings, parent);
  TRY(commit_record(core, **inode, std::move(next), std::move(edit)));
  (*holder)->set_record(std::move(holder_next));
  core.knowledge.tenants().remove(directory);
  if (core.notifications != nullptr) core.notifications->invalidate_entry(parent, name);
  return std::optional(links.front());
}

}  // namespace kvcachefs
