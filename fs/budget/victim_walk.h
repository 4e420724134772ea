// The stored files in the order in which they go: blocks by their policy, the others by their last use,
// merged into one.
//
// One thread. A walk goes on from where it was; what was passed over is met again after restart().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fs/evict/policy.h"
#include "fs/order/learner.h"

namespace kvcachefs {

struct Candidate {
  std::uint64_t name = 0;  // of a block: its number; of another file: its inode's
  bool is_block = false;
  order::EvictionKey key;  // when it was taken from the order
};

class VictimWalk {
 public:
  VictimWalk(EvictionPolicy& blocks, order::Learner& files) : blocks_(blocks), files_(files) {}

  // nullopt: the walk is at its end.
  std::optional<Candidate> next();
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
  Side of_blocks_;
  Side of_files_;
};

}  // namespace kvcachefs
