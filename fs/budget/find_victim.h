// From a name in the order of eviction to its file.
#pragma once

#include <string>

#include "fs/budget/victim_walk.h"
#include "fs/node/core.h"

namespace kvcachefs {

struct FoundVictim {
  InodePtr inode;    // null: it has no file any more, or one that another name stands for
  std::string hash;  // the prefix hash of a block; empty: its name tells none
};
FoundVictim find_victim(Core& core, const Candidate& candidate);

}  // namespace kvcachefs
