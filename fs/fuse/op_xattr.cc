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
  const bool waits = Volume::xattr_waits(name);
  const auto set = [inode, name = std::string(name), value = std::string(value, size), flags,
                    caller](Reply& answer) {
    answer.result(answer.volume().set_xattr(inode, name, value, flags, caller));
  };
  waits ? run_slowly(std::move(reply), kNoDisk, set) : run_change(std::move(reply), set);
}

void op_getxattr(fuse_req_t request, fuse_ino_t inode, const char* name,
                 std::size_t size) noexcept {
  Reply reply(request, Operation::kGetxattr);
  const auto get = [inode, name = std::string(name), caller = caller_of(request)](
                       Volume& volume) { return volume.get_xattr(inode, name, caller); };
  const auto answer_it = [size](Reply& answer, const Result<std::string>& value) {
    answer_bytes(std::move(answer), value, size);
  };
  if (!Volume::xattr_is_sought(name)) return run_look(std::move(reply), get, answer_it);
  run_slowly(std::move(reply), kNoDisk,
             [get, answer_it](Reply& answer) { answer_it(answer, get(answer.volume())); });
}

void op_listxattr(fuse_req_t request, fuse_ino_t inode, std::size_t size) noexcept {
  Reply reply(request, Operation::kListxattr);
  run_look(
      std::move(reply),
      [inode, caller = caller_of(request)](Volume& volume) {
        return volume.list_xattrs(inode, caller);
      },
      [size](Reply& answer, const Result<std::string>& names) {
        answer_bytes(std::move(answer), names, size);
      });
}

void op_removexattr(fuse_req_t request, fuse_ino_t inode, const char* name) noexcept {
  Reply reply(request, Operation::kRemovexattr);
  run_change(std::move(reply),
             [inode, name = std::string(name), caller = caller_of(request)](Reply& answer) {
               answer.result(answer.volume().remove_xattr(inode, name, caller));
             });
}

}  // namespace kvcachefs
