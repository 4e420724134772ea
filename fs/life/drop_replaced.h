// What a file held before the rewrite that is under way: nobody can read it any more, and it comes back only
// when the rewrite fails. Where room is short it goes first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "fs/node/core.h"

namespace kvcachefs {

struct Replaced {
  std::uint32_t device = 0;
  std::uint64_t bytes = 0;  // that it occupies until the reaper comes
};

// Of what its policy keeps, and of what hides an older file on the pool, it stays. `is_wanted`: of its device; asked under
// the inode's lock. nullopt: it stays, or there is none. Takes the lock. Errors: those of the catalog and of
// Knowledge::treatment(); it is there then.
Result<std::optional<Replaced>> drop_replaced(
    Core& core, Inode& inode, const std::function<bool(std::uint32_t)>& is_wanted);

}  // namespace kvcachefs
