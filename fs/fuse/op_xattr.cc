// Extended attributes, POSIX ACLs among them.
#include <algorithm>
#include <array>
#include <string_view>

#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

constexpr std::string_view kAccessAcl = "system.posix_acl_access";

// Whether setting an access ACL takes the set-group-ID bit away: unless the caller is
// privileged or in the file's group. The kernel knows, but libfuse does not pass its word on.
bool loses_set_gid(Volume& volume, fuse_req_t request, fuse_ino_t inode) noexcept {
  const Caller caller = caller_of(request);
  if (caller.uid == 0) return false;
  const Result<AttributesReply> attributes = volume.attributes(inode);
  if (!attributes || (attributes->attributes.st_mode & S_ISGID) == 0) return false;
  const gid_t group = attributes->attributes.st_gid;
  if (caller.gid == group) return false;
  // More groups than these are rare, and then the bit goes: the safe side.
  std::array<gid_t, 1024> groups;
  const int count = fuse_req_getgroups(request, static_cast<int>(groups.size()), groups.data());
  if (count <= 0) return true;
  const auto end = groups.begin() + std::min<std::ptrdiff_t>(count, std::ssize(groups));
  return std::find(groups.begin(), end, group) == end;
}

// A caller that gives no room asks for the size.
void answer_bytes(Reply reply, const Result<std::string>& bytes, std::size_t room) noexcept {
  if (!bytes) return reply.error(bytes.error());
  if (room == 0) return reply.xattr_size(bytes->size());
  if (bytes->size() > room) return reply.error(fail(ERANGE, "xattr buffer"));
  reply.data(bytes->data(), bytes->size());
}

}  // namespace

void op_setxattr(fuse_req_t request, fuse_ino_t inode, const char* name, const char* value,
                 std::size_t size, int flags) noexcept {
  Reply reply(request, Operation::kSetxattr);
  Volume& volume = reply.volume();
  const bool kill_sgid = name == kAccessAcl && loses_set_gid(volume, request, inode);
  reply.result(volume.set_xattr(inode, name, {value, size}, flags, kill_sgid));
}

void op_getxattr(fuse_req_t request, fuse_ino_t inode, const char* name,
                 std::size_t size) noexcept {
  Reply reply(request, Operation::kGetxattr);
  const Result<std::string> value = reply.volume().get_xattr(inode, name);
  answer_bytes(std::move(reply), value, size);
}

void op_listxattr(fuse_req_t request, fuse_ino_t inode, std::size_t size) noexcept {
  Reply reply(request, Operation::kListxattr);
  const Result<std::string> names = reply.volume().list_xattrs(inode);
  answer_bytes(std::move(reply), names, size);
}

void op_removexattr(fuse_req_t request, fuse_ino_t inode, const char* name) noexcept {
  Reply reply(request, Operation::kRemovexattr);
  reply.result(reply.volume().remove_xattr(inode, name));
}

}  // namespace kvcachefs
