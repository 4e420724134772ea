// Dropping: taking an inode's names away without the user's asking, so that it is a miss from
// now on. The cases: its writing failed (poison), its backing file is gone or damaged, a
// crash left it incomplete, or its room is needed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "fs/life/drop_reason.h"
#include "fs/node/core.h"

namespace kvcachefs {

// Of a file whose write has failed with this (Inode::write_errno).
[[nodiscard]] constexpr DropReason drop_reason_of(int write_errno) noexcept {
  return write_errno == kWriterEnded ? DropReason::kAbandoned : DropReason::kPoisoned;
}

struct DropLimits {
  // Asked before each name, under the inode's lock; with false those that are left stay.
  std::function<Result<bool>(const Inode&)> may_go = {};
  // This name alone: directory and name.
  std::optional<std::pair<InodeNumber, std::string>> only = {};
};

// Removes every name of the inode, tells the kernel, and leaves the inode to the reaper once
// nobody has it open. The caller holds no inode lock. An inode that is gone already is success.
// Errors: EIO, EBADMSG, ENOSPC.
//
// Of evictions (but of those that somebody asked for) the kernel is only told that its listing of the directory
// does not hold: a message about a name takes the directory's lock, where runtimes are making the next
// files, and a daemon that is killed while it waits there cannot end. What the kernel remembers of a name
// outlasts no lease and no young file (fs/budget); it asks again then, or when an open says ESTALE.
// `bytes`: what its copy occupies; it counts as that, and no more than its length.
Result<void> drop_names(Core& core, InodeNumber number, DropReason reason,
                        std::optional<std::uint64_t> bytes = {}, const DropLimits& limits = {});

}  // namespace kvcachefs
