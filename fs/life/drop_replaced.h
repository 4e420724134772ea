// What a file held before the rewrite that is under way: nobody can read it any more, and it comes back only
// when the rewrite fails. Where room is short it goes first.
#pragma once

#include <functional>
#include <optional>

#include "fs/budget/usage.h"
#include "fs/node/core.h"

namespace kvcachefs {

// Of what its policy keeps, and of what hides an older file on the pool, it stays. `wanted`: of the copy, asked last, under
// the inode's lock. nullopt: it stays, or there is none. Takes the lock. Errors: those of the catalog and of
// Knowledge::treatment(); it is there then.
Result<std::optional<SealedCopy>> drop_replaced(
    Core& core, Inode& inode, const std::function<bool(const SealedCopy&)>& wanted);

}  // namespace kvcachefs
