#include "fs/acl/acl.h"

#include <sys/stat.h>

namespace kvcachefs {

Result<void> inherit_mode(Catalog& catalog, const Inode& parent, InodeNumber number,
                          InodeRecord& record, mode_t umask, Edit& edit) {
  std::optional<std::string> value;
  if ((parent.record.flags & kInodeHasAcl) != 0)
    value = TRY(catalog.find_xattr(parent.number, kAclDefault));
  if (!value) {
    record.mode &= ~static_cast<std::uint32_t>(umask & 0777);
    return {};
  }
  const PosixAcl parent_default = TRY(PosixAcl::parse(*value));
  mode_t mode = record.mode;
  const PosixAcl access = parent_default.inherit(mode);
  record.mode = mode;
  if (!access.equals_mode()) {
    edit.put_xattr(number, kAclAccess, access.encode());
    record.flags |= kInodeHasAcl | kInodeHasXattr;
  }
  if (S_ISDIR(mode)) {
    edit.put_xattr(number, kAclDefault, *value);
    record.flags |= kInodeHasAcl | kInodeHasXattr;
  }
  return {};
}

Result<void> follow_mode(Catalog& catalog, InodeNumber number, const InodeRecord& record,
                         Edit& edit) {
  if ((record.flags & kInodeHasAcl) == 0) return {};
  const std::optional<std::string> value = TRY(catalog.find_xattr(number, kAclAccess));
  if (!value) return {};
  PosixAcl access = TRY(PosixAcl::parse(*value));
  access.set_mode_bits(record.mode & 0777);
  edit.put_xattr(number, kAclAccess, access.encode());
  return {};
}

Result<std::uint32_t> mode_without_acl(Catalog& catalog, InodeNumber number,
                                       const InodeRecord& record) {
  const std::uint32_t mode = record.mode & 07777;
  if ((record.flags & kInodeHasAcl) == 0) return mode;
  const std::optional<std::string> value = TRY(catalog.find_xattr(number, kAclAccess));
  if (!value) return mode;
  Result<PosixAcl> acl = PosixAcl::parse(*value);
  if (!acl.ok()) return fail(EBADMSG, "a stored ACL");
  acl->set_mode_bits(mode & 0777);
  return (mode & ~0777U) | acl->least_mode();
}

}  // namespace kvcachefs
