#include "fs/life/obstacle.h"

#include <array>

namespace kvcachefs {

std::string_view name_of(Obstacle obstacle) noexcept {
  constexpr std::array<std::string_view, kObstacles> kNames = {
      "none", "open", "unsealed", "kept", "pinned", "leased", "unwanted", "owned", "queued"};
  return kNames[static_cast<std::size_t>(obstacle)];
}

Obstacle obstacle_by_policy(const Treatment& treatment) noexcept {
  if (treatment.policy == FilePolicy::kPin) return Obstacle::kPinned;
  if (treatment.policy == FilePolicy::kKeep) return Obstacle::kKept;
  if (treatment.is_kept()) return Obstacle::kOwned;
  return Obstacle::kNone;
}

Obstacle obstacle_of(const InodeRecord& record, std::uint32_t opens, const Treatment& treatment,
                     bool before_seal) noexcept {
  if (opens > 0) return Obstacle::kOpen;
  const bool is_whole = record.state == DataState::kSealed ||
                        (before_seal && record.state == DataState::kPublished);
  if (!is_whole) return Obstacle::kUnsealed;
  return obstacle_by_policy(treatment);
}

}  // namespace kvcachefs
