#include "fs/pool/drop_shared.h"

#include "fs/life/drop.h"
#include "fs/life/pool_standing.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {
namespace {

// Looked at for the one that is on the pool.
constexpr std::size_t kMostLinksDropped = 1024;

Result<bool> has_its_bytes_and_more_names(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.record.nlink > 1 && inode.record.state != DataState::kRemote;
}

}  // namespace

Result<void> drop_shared(Core& core, InodeNumber number, const PoolCopy& copy) {
  const Result<InodePtr> inode = core.table.get(number);
  if (!inode.ok()) return inode.error().code == ESTALE ? Result<void>{} : inode.error();
  bool has_gone = false;
  DropLimits limits;
  limits.may_go = [&](const Inode& now) -> Result<bool> {
    const DataState state = now.record.state;
    if (has_gone) return state == DataState::kRemote;
    if (state == DataState::kUnpublished || state == DataState::kMutable) return false;
    const auto standing = TRY(core.catalog.find_pool_copy(number));
    if (!standing || !standing->is_same_file(copy)) return false;
    has_gone = !TRY(is_newer(core, now, copy));
    return has_gone;
  };
  if (!TRY(has_its_bytes_and_more_names(**inode)))
    return drop_names(core, number, DropReason::kRemoved, {}, limits);
  for (auto& [directory, name] : TRY(core.catalog.list_links(number, kMostLinksDropped))) {
    const auto shared = shared_name(core.knowledge, directory, name);
    if (!shared || shared->path_hash != copy.path_hash) continue;
    limits.only = {directory, std::move(name)};
    break;
  }
  if (!limits.only) return {};
  TRY(drop_names(core, number, DropReason::kRemoved, {}, limits));
  const std::lock_guard lock((*inode)->mutex);
  if (!has_gone || (*inode)->record.nlink == 0) return {};
  const auto standing = TRY(core.catalog.find_pool_copy(number));
  if (!standing || !standing->is_same_file(copy)) return {};
  Edit edit;
  edit.remove_pool_copy(number, copy);
  return core.catalog.commit(std::move(edit));
}

}  // namespace kvcachefs
