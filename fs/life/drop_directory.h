// A directory that stands for a block (NameKind::kDirectory) goes with the last of its files: its
// runtime takes it for the block.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "fs/node/core.h"

namespace kvcachefs {

// After a name in it was dropped. Nothing happens to one that is no such directory, has further
// names in it, or is shared on a pool, where the files may be. The caller holds no inode lock.
// Errors: EIO, EBADMSG, ENOSPC.
Result<void> drop_block_directory(Core& core, InodeNumber directory);

// Removes a directory that is empty, as rmdir does; its parent and the name that it had, or nullopt: it
// is not empty, or has no name. `may`: asked with the locks of both held; where it is false nothing
// happens; it may add to the edit. The caller holds no inode lock. Errors: EIO, EBADMSG, ENOSPC, those of
// `may`.
using DirectoryName = std::pair<InodeNumber, std::string>;
Result<std::optional<DirectoryName>> drop_empty_directory(
    Core& core, InodeNumber directory,
    const std::function<Result<bool>(const Inode&, Edit&)>& may);

}  // namespace kvcachefs
