// What a directory is told that is of its files, whichever server has them: its layout, a policy
// and a time to live. All servers of a pool know it. What is of one server (a share and a quota of
// its budget, what it gives the pool, O_DIRECT of its programs) stays on that server.
//
//     told here ──► catalog: an owner change ──► the directory's record on the pool, others are told
//                                                (owner_teller.h)
//     told by another node, or asked for ──► take_told() ──► the xattr here (owner_refresh.h)
//
// What was told here and is not on the pool yet holds here, whatever the record says. A word that
// the record does not have was told by nobody there: what is told here stays, and goes there.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backend/pool/pool_format.h"
#include "fs/node/core.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

// Whether the xattr, which is set or removed, is one that all servers of the pool get.
[[nodiscard]] bool is_shared_word(const Inode& inode, std::string_view xattr) noexcept;

// Adds to the edit that the others are to hear of that xattr. `name`: where the directory stands on
// the pool; nullopt: it stays here. The caller holds the inode's lock. Errors: EIO, EBADMSG.
Result<void> put_told_change(Core& core, const Inode& inode,
                             const std::optional<SharedName>& name, std::string_view xattr,
                             Edit& edit);

// The bits (OwnerChange::told) of what the directory is told here. Errors: EIO.
[[nodiscard]] Result<std::uint8_t> told_bits(Core& core, InodeNumber directory);
// What the directory is told here, of these bits, as the pool's record has it. Errors: EIO.
[[nodiscard]] Result<std::vector<PoolWord>> told_words(Core& core, InodeNumber directory,
                                                       std::uint8_t bits);

// All that can be told to all servers, as the directory is told it here. Of what is no directory
// nothing. Errors: EIO.
[[nodiscard]] Result<std::vector<PoolWord>> all_told(Core& core, const Inode& inode);

// The directory, which is on the pool as `shared` with this number, is told here what its record
// says, but for what was told here and is not there yet, and for what this mount would not let be
// told: a value that it does not know, or a policy that the directory's owner may not give here
// (--keep-by). These are logged. What is told here and not in the record is told there once more.
// `said`: nullopt where there is no record. `asked`: all_told() of before the pool was asked. Nothing
// happens where this inode is another directory by now. Any thread, without the inode's lock. Errors:
// EAGAIN (it was told something here since then: what the record says by now is not known), EIO,
// EBADMSG, ENOSPC.
Result<void> take_told(Core& core, Inode& inode, const SharedName& shared, std::uint64_t fileid,
                       const std::vector<PoolWord>& asked, const std::optional<PoolTold>& said);

}  // namespace kvcachefs
