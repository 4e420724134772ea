// A file is torn when a write of its bytes was refused and no call has said so: of a mapping,
// for a disk that does not answer (Volume::refused_write()). The kernel has given those bytes
// up. Also when who wrote it has failed, or has ended, after a first close had published what
// was there then (Files::give_up_store()).
#pragma once

#include "backend/base/result.h"
#include "fs/node/core.h"

namespace kvcachefs {

// Of a file that is published; another one is not published at its close. The caller holds the
// inode's lock.
[[nodiscard]] inline bool is_torn(const Inode& inode) noexcept {
  const DataState state = inode.record.state;
  return (state == DataState::kPublished || state == DataState::kMutable) &&
         inode.torn_object.load() == inode.record.object;
}

// After its last close: drops a torn file. Not one that its application has synced, or that is
// to be kept: that has an error, as after one of the disk, and is there. Takes the inode's
// lock. Errors: those of note_policy() and drop_names(); the seal tries it again if the inode
// is in memory.
Result<void> drop_torn(Core& core, Inode& inode);

}  // namespace kvcachefs
