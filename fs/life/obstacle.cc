#include "fs/life/obstacle.h"

#include <array>

namespace kvcachefs {

std::string_view name_of(Obstacle obstacle) noexcept {
  constexpr std::array<std::string_view, kObstacles> kNames = {"none", "open", "unsealed",
                                                               "kept", "pinned"};
  return kNames[static_cast<std::size_t>(obstacle)];
}

Obstacle obstacle_of(const InodeRecord& record, std::uint32_t opens,
                     FilePolicy policy) noexcept {
  if (opens > 0) return Obstacle::kOpen;
  if (record.state != DataState::kSealed) return Obstacle::kUnsealed;
  if (policy == FilePolicy::kPin) return Obstacle::kPinned;
  if (policy == FilePolicy::kKeep) return Obstacle::kKept;
  return Obstacle::kNone;
}

Result<Obstacle> obstacle_of(Core& core, Inode& inode) {
  InodeRecord record;
  std::uint32_t opens = 0;
  {
    const std::lock_guard lock(inode.mutex);
    record = inode.record;
    opens = inode.opens;
  }
  const Treatment treatment = TRY(core.knowledge.treatment(inode.number, record));
  return obstacle_of(record, opens, treatment.policy);
}

}  // namespace kvcachefs
