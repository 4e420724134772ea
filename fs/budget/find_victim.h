// From a name in the order of eviction to its file.
#pragma once

#include "fs/budget/victim_walk.h"
#include "fs/node/core.h"

namespace kvcachefs {

// Null: it has no file any more, or one that another name stands for.
InodePtr find_victim(Core& core, const Candidate& candidate);

}  // namespace kvcachefs
