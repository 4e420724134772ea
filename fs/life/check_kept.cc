#include "fs/life/check_kept.h"

#include "fs/life/states.h"

namespace kvcachefs {

Result<void> check_kept(Core& core, Inode& inode) {
  const InodeRecord& record = inode.record;
  // Its bytes are on the pool alone.
  if (record.state == DataState::kRemote || !core.knowledge.tenants().had_any()) return {};
  if (core.budget.usage().is_counted_kept(record.object)) return {};
  Tier* tier = TRY(core.devices->of(inode));
  const struct stat backing = TRY(tier->status(record.object));
  // A file that is being written, or is not sealed yet, counts as what stays already.
  const bool counts = is_unsealed(record.state);
  if (counts) core.budget.measured(inode, backing);
  return core.budget.check_staying(inode.tenant.load(), counts ? 0 : allocated_bytes(backing));
}

Result<void> check_moved(Core& core, Inode& inode, TenantSlot to) {
  const InodeRecord& record = inode.record;
  if (!inode.is_file() || record.state == DataState::kRemote || inode.tenant.load() == to)
    return {};
  const bool is_kept = core.budget.usage().is_counted_kept(record.object) || inode.kept ||
                       (record.flags & kInodeKeep) != 0;
  if (!is_kept) return {};
  Tier* tier = TRY(core.devices->of(inode));
  const struct stat backing = TRY(tier->status(record.object));
  return core.budget.check_staying(to, allocated_bytes(backing));
}

}  // namespace kvcachefs
