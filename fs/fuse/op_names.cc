// What makes, moves and removes names.
#include <string>

#include "fs/fuse/ops.h"

namespace kvcachefs {

void op_readlink(fuse_req_t request, fuse_ino_t inode) noexcept {
  Reply reply(request, Operation::kReadlink);
  const Result<std::string> target = reply.volume().read_link(inode);
  if (!target) return reply.error(target.error());
  reply.link_target(target->c_str());
}

void op_mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
              dev_t rdev) noexcept {
  Reply reply(request, Operation::kMknod);
  const Result<Entry> made =
      reply.volume().make_node(parent, name, mode, rdev, caller_of(request));
  answer_entry(std::move(reply), made);
}

void op_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept {
  Reply reply(request, Operation::kMkdir);
  const mode_t with_type = (mode & ~static_cast<mode_t>(S_IFMT)) | S_IFDIR;
  const Result<Entry> made =
      reply.volume().make_node(parent, name, with_type, 0, caller_of(request));
  answer_entry(std::move(reply), made);
}

void op_symlink(fuse_req_t request, const char* target, fuse_ino_t parent,
                const char* name) noexcept {
  Reply reply(request, Operation::kSymlink);
  const Result<Entry> made =
      reply.volume().make_symlink(parent, name, target, caller_of(request));
  answer_entry(std::move(reply), made);
}

void op_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  Reply reply(request, Operation::kUnlink);
  reply.result(reply.volume().unlink(parent, name));
}

void op_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  Reply reply(request, Operation::kRmdir);
  if (reply.volume().rmdir_asks_pool(parent, name) &&
      run_on_pool(reply, [parent, name = std::string(name)](Reply& answer) {
        answer.result(answer.volume().rmdir(parent, name));
      }))
    return;
  reply.result(reply.volume().rmdir(parent, name, AskPool::kNo));
}

void op_rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
               const char* new_name, unsigned flags) noexcept {
  Reply reply(request, Operation::kRename);
  if (!reply.volume().rename_waits_for_disk(parent, name, new_parent, new_name, flags)) {
    return reply.result(reply.volume().rename(parent, name, new_parent, new_name, flags,
                                              caller_of(request), false));
  }
  // The request's memory is gone when this handler returns.
  run_slowly(std::move(reply), [parent, from = std::string(name), new_parent,
                                to = std::string(new_name), flags,
                                caller = caller_of(request)](Reply& answer) {
    answer.result(answer.volume().rename(parent, from, new_parent, to, flags, caller, true));
  });
}

void op_link(fuse_req_t request, fuse_ino_t inode, fuse_ino_t new_parent,
             const char* new_name) noexcept {
  Reply reply(request, Operation::kLink);
  if (!reply.volume().waits_for_disk(new_parent, new_name)) {
    const Result<Entry> linked =
        reply.volume().link(inode, new_parent, new_name, caller_of(request), false);
    return answer_entry(std::move(reply), linked);
  }
  run_slowly(std::move(reply), [inode, new_parent, name = std::string(new_name),
                                caller = caller_of(request)](Reply& answer) {
    const Result<Entry> linked = answer.volume().link(inode, new_parent, name, caller, true);
    answer_entry(std::move(answer), linked);
  });
}

}  // namespace kvcachefs
