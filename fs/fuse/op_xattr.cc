// Extended attributes, POSIX ACLs among them.
#include <string>
#include <utility>

#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

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
  const Caller caller = caller_of(request);
  if (!Volume::xattr_waits(name))
    return reply.result(reply.volume().set_xattr(inode, name, {value, size}, flags, caller));
  run_slowly(std::move(reply),
             [inode, name = std::string(name), value = std::string(value, size), flags,
              caller](Reply& answer) {
               answer.result(answer.volume().set_xattr(inode, name, value, flags, caller));
             });
}

void op_getxattr(fuse_req_t request, fuse_ino_t inode, const char* name,
                 std::size_t size) noexcept {
  Reply reply(request, Operation::kGetxattr);
  const Result<std::string> value = reply.volume().get_xattr(inode, name);
  answer_bytes(std::move(reply), value, size);
}

void op_listxattr(fuse_req_t request, fuse_ino_t inode, std::size_t size) noexcept {
  Reply reply(request, Operation::kListxattr);
  const Result<std::string> names = reply.volume().list_xattrs(inode, caller_of(request));
  answer_bytes(std::move(reply), names, size);
}

void op_removexattr(fuse_req_t request, fuse_ino_t inode, const char* name) noexcept {
  Reply reply(request, Operation::kRemovexattr);
  reply.result(reply.volume().remove_xattr(inode, name, caller_of(request)));
}

}  // namespace kvcachefs
