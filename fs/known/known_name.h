// What the name of a file says about KV cache, and how the xattrs user.kvcachefs.* show it.
//
// The path is put together from the catalog when somebody asks; nothing of it is kept.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fs/layout/layout.h"
#include "fs/node/core.h"

namespace kvcachefs {

struct KnownName {
  std::string path;  // relative to the root; what `file` views
  std::optional<Recognized> file;

  KnownName() = default;
  // `file` views `path`.
  KnownName(const KnownName&) = delete;
  KnownName& operator=(const KnownName&) = delete;
};

// Of the inode's first name that is a block's, or else of the first that is recognised. The nearest directory above it that was told a layout (kToldXattr)
// decides. Nothing is recognised of an inode without a name, or deeper than 4096 bytes of path.
// Errors: EIO, EBADMSG.
Result<void> find_known_name(Catalog& catalog, InodeNumber inode, KnownName& out);

inline constexpr std::string_view kOwnXattrs = "user.kvcachefs.";
// The prefix hash of the block before it; Knowledge answers it, and may be told.
inline constexpr std::string_view kParentXattr = "user.kvcachefs.parent";

// The value of one of the read-only xattrs: runtime, model, prefix. Errors: ENODATA (the name does
// not tell, or there is no such xattr), EIO, EBADMSG.
Result<std::string> known_xattr(Catalog& catalog, InodeNumber inode, std::string_view name);

// Whether an xattr of ours may be stored: kToldXattr, on a directory, to the name of a layout; kPolicyXattr
// and kTtlXattr on a directory or a regular file; kShareXattr, kQuotaXattr, kDirectIoXattr and kPoolWritesXattr on a
// directory. Errors: EPERM (read-only, or on something else), EINVAL (no such layout or policy, no time to
// live, no size, none of the words), ENOTDIR, EOPNOTSUPP (this version knows none of that name).
Result<void> check_own_xattr(const InodeRecord& inode, std::string_view name,
                             std::string_view value);

}  // namespace kvcachefs
