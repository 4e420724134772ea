#include "fs/pool/owner_changes.h"

#include <sys/stat.h>

#include <utility>

#include "fs/acl/acl.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"

namespace kvcachefs {
namespace {

constexpr std::uint32_t kPermissions = 07777;

Owner owner_in(const InodeRecord& record) noexcept {
  return {.uid = record.uid, .gid = record.gid, .mode = record.mode & kPermissions};
}

}  // namespace

Owner owner_of(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return owner_in(inode.record);
}

Result<void> put_owner_change(Core& core, const Inode& inode,
                              const std::optional<SharedName>& name, const InodeRecord& next,
                              Edit& edit) {
  if (!name || owner_in(next) == owner_in(inode.record)) return {};
  const auto copy = TRY(core.catalog.find_pool_copy(inode.number));
  if (!copy || copy->path_hash != name->path_hash) return {};
  edit.put_owner_change(name->path, {.fileid = copy->fileid,
                                     .uid = next.uid,
                                     .gid = next.gid,
                                     .mode = next.mode & kPermissions});
  return {};
}

Result<void> take_owner(Core& core, Inode& inode, const Owner& asked, const SharedName& shared,
                        const PoolSums& said) {
  {
    const std::lock_guard lock(inode.mutex);
    const auto copy = TRY(core.catalog.find_pool_copy(inode.number));
    if (!copy || copy->fileid != said.fileid || copy->path_hash != shared.path_hash) return {};
    const auto given = TRY(core.catalog.find_owner_change(shared.path));
    if (given && given->fileid == said.fileid) return {};
    if (!(owner_in(inode.record) == asked)) return fail(EAGAIN, "an owner was given meanwhile");
    InodeRecord next = inode.record;
    next.uid = said.uid;
    next.gid = said.gid;
    next.mode = (next.mode & static_cast<std::uint32_t>(S_IFMT)) | (said.mode & kPermissions);
    if (next.nlink == 0 || next == inode.record) return {};
    Edit edit;
    TRY(follow_mode(core.catalog, inode.number, next, edit));
    next.ctime = file_clock_now();
    TRY(commit_record(core, inode, std::move(next), std::move(edit)));
  }
  if (core.notifications != nullptr) core.notifications->invalidate_attributes(inode.number);
  return {};
}

}  // namespace kvcachefs
