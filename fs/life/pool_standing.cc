#include "fs/life/pool_standing.h"

namespace kvcachefs {

Result<bool> is_newer(Core& core, const Inode& inode, const PoolCopy& copy) {
  const InodeRecord& record = inode.record;
  if (record.state == DataState::kRemote) return false;
  // What was loaded has the time of what was found.
  const bool is_loaded = record.stamp.mtime == copy.mtime && record.stamp.size == copy.size;
  if (record.state == DataState::kPublished && !is_loaded) return true;
  return core.catalog.is_to_publish(inode.number);
}

Result<HidesOlder> hides_older(Core& core, const Inode& inode) {
  if (!core.is_publishing || inode.block.load(std::memory_order_relaxed) != 0)
    return HidesOlder::kNo;
  const auto copy = TRY(core.catalog.find_pool_copy(inode.number));
  if (!copy)
    return TRY(core.catalog.is_to_publish(inode.number)) ? HidesOlder::kMaybe : HidesOlder::kNo;
  return TRY(is_newer(core, inode, *copy)) ? HidesOlder::kYes : HidesOlder::kNo;
}

}  // namespace kvcachefs
