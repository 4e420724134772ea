// Owners and modes of what is on the pool: who changes one changes it for all nodes.
//
//     chmod, chown here ──► catalog: an owner change ──► the record on the pool, others are told (owner_teller.h)
//     told by another node, or asked for ──► the inode here has what the record says (owner_refresh.h)
//
//     set, pin, a directory's policy ──► the same way: whether it may be evicted from the pool (keep_teller.h)
//
// What was given here and is not on the pool yet holds here, whatever the record says. Who gives a mode says nothing of the
// owner, nor the other way round: of two nodes that change one each, both changes hold. An ACL stays here; the mode that
// others are told lets nobody in whom it keeps out (mode_without_acl()).
#pragma once

#include <optional>

#include "backend/pool/pool_format.h"
#include "fs/node/core.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

// What of an owner and a mode somebody has given; the rest is what others made it.
struct GivenOwner {
  bool uid = false;
  bool gid = false;
  bool mode = false;
  // Where the ACL is given with it: the mode that others are told then.
  std::optional<std::uint32_t> told_mode = std::nullopt;
};

// What others are still to hear of that file or directory. Errors: EIO, EBADMSG.
[[nodiscard]] Result<OwnerChange> waiting_change(Core& core, std::string_view path,
                                                 std::uint64_t fileid);

// Adds to the edit that others are to hear of what was given, or follows from it, in `next`, which is not what the inode is
// yet. Does nothing for what is not on the pool under this name. The caller holds the inode's lock. Errors: EIO, EBADMSG.
Result<void> put_owner_change(Core& core, const Inode& inode,
                              const std::optional<SharedName>& name, const GivenOwner& given,
                              const InodeRecord& next, Edit& edit);

inline constexpr std::uint32_t kPermissions = 07777;  // of a mode
// What others say of a mode (its type is that of `own`), less the bits that have a program run
// as its owner or group: no other server gives them. Those of `own` stay.
[[nodiscard]] std::uint32_t permissions_said(std::uint32_t own, std::uint32_t said) noexcept;

// As it is here, or as others are told it, without the ACL.
struct Owner {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t mode = 0;  // permission bits
  bool operator==(const Owner&) const = default;
};
[[nodiscard]] Owner owner_in(const InodeRecord& record) noexcept;
// As others are told. The caller holds the inode's lock. Errors: EIO, EBADMSG.
[[nodiscard]] Result<Owner> owner_told(Core& core, const Inode& inode);
// Without the inode's lock.
[[nodiscard]] Owner owner_of(Inode& inode);
// All of it, as what was given.
[[nodiscard]] OwnerChange whole_change(std::uint64_t fileid, const Owner& owner) noexcept;
// The owner, but for what was given here to the file that the server has under this number, and is not on the pool yet.
// Errors: EIO, EBADMSG.
[[nodiscard]] Result<Owner> with_given(Core& core, std::string_view path, std::uint64_t fileid,
                                       Owner owner);

// Adds to the edit that others are to hear whether the file may be evicted from the pool, and notes it in `copy`, which the
// caller puts. Errors: EIO, EBADMSG.
Result<void> put_keep_change(Core& core, std::string_view path, PoolCopy& copy, bool keep,
                             Edit& edit);

// The inode, which is on the pool as `shared`, gets the owner and the mode that `said` has for it. `asked`: its own, before
// the pool was asked. What was given here and is not there yet holds; nothing happens where the record speaks of another
// file. Any thread, without the inode's lock. Errors:
// EAGAIN (another was given here since then: what the record says by now is not known), EIO, EBADMSG.
Result<void> take_owner(Core& core, Inode& inode, const Owner& asked, const SharedName& shared,
                        const PoolSums& said);

}  // namespace kvcachefs
