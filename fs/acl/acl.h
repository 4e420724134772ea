// ACLs of inodes: what creation inherits, and what chmod changes. The lists are xattrs in the
// catalog.
#pragma once

#include "fs/acl/posix_acl.h"
#include "fs/node/inode.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// Sets the permission bits of a new inode (`record.mode` holds what was asked for): by the
// parent's default ACL where it has one, else by the umask. Adds the inherited ACLs to the
// edit. The caller holds the parent's lock. Errors: EIO, EBADMSG.
Result<void> inherit_mode(Catalog& catalog, const Inode& parent, InodeNumber number,
                          InodeRecord& record, mode_t umask, Edit& edit);

// chmod: brings the access ACL, if there is one, in line with `record.mode`. Errors: EIO,
// EBADMSG.
Result<void> follow_mode(Catalog& catalog, InodeNumber number, const InodeRecord& record,
                         Edit& edit);

// Permission bits for those who are told the mode of `record` and not the ACL: they give nobody more. Errors: EIO, EBADMSG.
[[nodiscard]] Result<std::uint32_t> mode_without_acl(Catalog& catalog, InodeNumber number,
                                                     const InodeRecord& record);

}  // namespace kvcachefs
