// The stored files in the order in which they go: blocks by their policy, the others by their last use,
// merged into one. Of all files, or of those of some tenants.
//
// One thread. A walk goes on from where it was; what was passed over is met again after restart().
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "fs/evict/policy.h"
#include "fs/known/tenants.h"
#include "fs/order/learner.h"

namespace kvcachefs {

struct Candidate {
  std::uint64_t name = 0;  // of a block: its number; of another file: its inode's
  bool is_block = false;
  TenantSlot tenant = 0;
  order::EvictionKey key;  // when it was taken from the order
};

class VictimWalk {
 public:
  VictimWalk(EvictionPolicy& blocks, order::Learner& files) : blocks_(blocks), files_(files) {}

  // The next of these tenants; each has its own place in the walk. nullopt: it is at its end with them.
  std::optional<Candidate> next(TenantMask of = kAllTenants);
  void restart();
  // Goes on from the same place, by what was used since.
  void refresh();
  // Whether it was not used since next() gave it.
  [[nodiscard]] bool is_current(const Candidate& candidate);

 private:
  struct Side {
    std::vector<order::Victim> batch;
    std::size_t at = 0;
    std::optional<order::Victim> last;  // that was taken
    bool ended = false;
  };
  template <typename Fetch>
  static const order::Victim* peek(Side& side, Fetch fetch);

  EvictionPolicy& blocks_;
  order::Learner& files_;
  // By slot.
  std::array<Side, order::kGroups> of_blocks_;
  std::array<Side, order::kGroups> of_files_;
};

}  // namespace kvcachefs
