// The files of one block: those of the same prefix hash over ranks, groups and parts, of the same model with the
// same configuration, below the same directory and of the same tenant. A runtime that misses one of them has no
// use for the others, so they stay and go together: all of them when the turn of the one that was used last has
// come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fs/budget/victim_walk.h"
#include "fs/evict/policy.h"
#include "fs/node/core.h"

namespace kvcachefs {

struct Siblings {
  std::vector<Candidate> others;
  std::uint64_t newest = 0;  // stamp of the one that was used last; 0: there are none
};

// Of a block of that prefix hash. None where the database fails. Not under an inode's lock.
[[nodiscard]] Siblings siblings_of(Core& core, EvictionPolicy& policy, const Candidate& block,
                                   const std::string& hash);

}  // namespace kvcachefs
