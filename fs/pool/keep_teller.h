// What directories and files are told of what must not be lost, after it was published: the pool's evictors go by what its
// records say. A part of write-back.
//
//     told keep, pin, or neither any more ──► each file that is known to be on the pool: does its record say so?
//                                             no ──► an owner change (owner_changes.h), which OwnerTeller puts there
#pragma once

#include <chrono>
#include <optional>

#include "fs/node/core.h"
#include "fs/pool/work_left.h"

namespace kvcachefs {

// Sees to it that the pool keeps this file, or keeps it no more. `said`: what its record there says, where that is known.
// Does nothing for what is not on the pool. Any thread, without the inode's lock. Errors: ESTALE (its names are changing,
// or it is told something else: ask again), EIO, EBADMSG.
Result<void> tell_kept(Core& core, Inode& inode, std::optional<bool> said = std::nullopt);

// Of one thread.
class KeepTeller {
 public:
  explicit KeepTeller(Core& core) : core_(core) {}

  // Looks at some files on the pool if something was told since all were looked at. Errors: EIO, EBADMSG.
  Result<WorkLeft> step();

 private:
  Core& core_;
  // Knowledge::treatments_age() when the last look at all of them began; nullopt: there was none.
  std::optional<std::uint64_t> age_;
  std::optional<InodeNumber> last_;  // that this look has met; nullopt: none is under way
  std::chrono::steady_clock::time_point ended_{};  // the last step
  std::chrono::steady_clock::duration took_{};     // all steps of the last look
};

}  // namespace kvcachefs
