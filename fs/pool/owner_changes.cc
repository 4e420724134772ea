#include "fs/pool/owner_changes.h"

#include <sys/stat.h>

#include <utility>

#include "fs/acl/acl.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"

namespace kvcachefs {
namespace {

// It stands for what this one is to replace there.
bool is_older_file(const Inode& inode, const PoolCopy& copy) {
  return inode.is_file() && copy.mtime == 0;
}

}  // namespace

Result<OwnerChange> waiting_change(Core& core, std::string_view path, std::uint64_t fileid) {
  const auto waiting = TRY(core.catalog.find_owner_change(path));
  return waiting && waiting->fileid == fileid ? *waiting : OwnerChange{.fileid = fileid};
}

std::uint32_t permissions_said(std::uint32_t own, std::uint32_t said) noexcept {
  // Of a directory the group's bit says whose group its files get.
  const std::uint32_t set_id = S_ISDIR(own) ? S_ISUID : S_ISUID | S_ISGID;
  return (said & kPermissions & ~set_id) | (own & set_id);
}

Owner owner_in(const InodeRecord& record) noexcept {
  return {.uid = record.uid, .gid = record.gid, .mode = record.mode & kPermissions};
}

Result<Owner> owner_told(Core& core, const Inode& inode) {
  Owner owner = owner_in(inode.record);
  owner.mode = TRY(mode_without_acl(core.catalog, inode.number, inode.record));
  return owner;
}

Owner owner_of(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return owner_in(inode.record);
}

OwnerChange whole_change(std::uint64_t fileid, const Owner& owner) noexcept {
  return {.fileid = fileid, .uid = owner.uid, .gid = owner.gid, .mode = owner.mode};
}

Result<Owner> with_given(Core& core, std::string_view path, std::uint64_t fileid, Owner owner) {
  const auto given = TRY(core.catalog.find_owner_change(path));
  if (!given || given->fileid != fileid) return owner;
  return Owner{.uid = given->uid.value_or(owner.uid),
               .gid = given->gid.value_or(owner.gid),
               .mode = given->mode.value_or(owner.mode)};
}

Result<void> put_keep_change(Core& core, std::string_view path, PoolCopy& copy, bool keep,
                             Edit& edit) {
  OwnerChange change = TRY(waiting_change(core, path, copy.fileid));
  change.keep = copy.keep = keep;
  edit.put_owner_change(path, change);
  return {};
}

Result<void> put_owner_change(Core& core, const Inode& inode,
                              const std::optional<SharedName>& name, const GivenOwner& given,
                              const InodeRecord& next, Edit& edit) {
  if (!name) return {};
  const Owner before = owner_in(inode.record);
  const Owner after = owner_in(next);
  const bool uid = given.uid || after.uid != before.uid;
  const bool gid = given.gid || after.gid != before.gid;
  const bool mode = given.mode || after.mode != before.mode;
  if (!uid && !gid && !mode) return {};
  const auto copy = TRY(core.catalog.find_pool_copy(inode.number));
  if (!copy || copy->path_hash != name->path_hash || is_older_file(inode, *copy)) return {};
  OwnerChange change = TRY(waiting_change(core, name->path, copy->fileid));
  if (uid) change.uid = after.uid;
  if (gid) change.gid = after.gid;
  if (mode)
    change.mode = given.told_mode ? *given.told_mode
                                  : TRY(mode_without_acl(core.catalog, inode.number, next));
  edit.put_owner_change(name->path, change);
  return {};
}

Result<void> take_owner(Core& core, Inode& inode, const Owner& asked, const SharedName& shared,
                        const PoolSums& said) {
  {
    const std::lock_guard lock(inode.mutex);
    const auto copy = TRY(core.catalog.find_pool_copy(inode.number));
    if (!copy || copy->fileid != said.fileid || copy->path_hash != shared.path_hash ||
        is_older_file(inode, *copy))
      return {};
    if (!(owner_in(inode.record) == asked)) return fail(EAGAIN, "an owner was given meanwhile");
    // A new owner ends them, as with chown(2).
    const bool is_same_owner = said.uid == inode.record.uid && said.gid == inode.record.gid;
    const std::uint32_t own = is_same_owner
                                  ? inode.record.mode
                                  : inode.record.mode & static_cast<std::uint32_t>(S_IFMT);
    Owner owner = TRY(with_given(
        core, shared.path, said.fileid,
        {.uid = said.uid, .gid = said.gid, .mode = permissions_said(own, said.mode)}));
    const Owner told = TRY(owner_told(core, inode));
    if (owner.mode == told.mode) owner.mode = inode.record.mode & kPermissions;
    InodeRecord next = inode.record;
    next.uid = owner.uid;
    next.gid = owner.gid;
    next.mode = (next.mode & static_cast<std::uint32_t>(S_IFMT)) | (owner.mode & kPermissions);
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
