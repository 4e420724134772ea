// What makes, moves and removes names.
#include <string>

#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

// The request's memory is gone when its handler returns, as in all of these.
void make_node(Reply reply, fuse_ino_t parent, const char* name, mode_t mode, dev_t rdev) {
  const Caller caller = caller_of(reply.request());
  run_change(std::move(reply), [=, name = std::string(name)](Reply& answer) {
    const Result<Entry> made = answer.volume().make_node(parent, name, mode, rdev, caller);
    answer_entry(std::move(answer), made);
  });
}

}  // namespace

void op_readlink(fuse_req_t request, fuse_ino_t inode) noexcept {
  Reply reply(request, Operation::kReadlink);
  run_look(
      std::move(reply), [inode](Volume& volume) { return volume.read_link(inode); },
      [](Reply& answer, const Result<std::string>& target) {
        target ? answer.link_target(target->c_str()) : answer.error(target.error());
      });
}

void op_mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
              dev_t rdev) noexcept {
  Reply reply(request, Operation::kMknod);
  make_node(std::move(reply), parent, name, mode, rdev);
}

void op_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept {
  Reply reply(request, Operation::kMkdir);
  const mode_t with_type = (mode & ~static_cast<mode_t>(S_IFMT)) | S_IFDIR;
  make_node(std::move(reply), parent, name, with_type, 0);
}

void op_symlink(fuse_req_t request, const char* target, fuse_ino_t parent,
                const char* name) noexcept {
  Reply reply(request, Operation::kSymlink);
  run_change(std::move(reply), [parent, target = std::string(target), name = std::string(name),
                                caller = caller_of(request)](Reply& answer) {
    const Result<Entry> made = answer.volume().make_symlink(parent, name, target, caller);
    answer_entry(std::move(answer), made);
  });
}

void op_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  Reply reply(request, Operation::kUnlink);
  const Caller caller = caller_of(request);
  run_change(std::move(reply), [=, name = std::string(name)](Reply& answer) {
    answer.result(answer.volume().unlink(parent, name, caller));
  });
}

void op_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  Reply reply(request, Operation::kRmdir);
  const bool asks_pool =
      look_here(reply, [&](Volume& volume) { return volume.rmdir_asks_pool(parent, name); });
  if (asks_pool && run_on_pool(reply, [parent, name = std::string(name)](Reply& answer) {
        answer.result(answer.volume().rmdir(parent, name));
      }))
    return;
  run_change(std::move(reply), [parent, name = std::string(name)](Reply& answer) {
    answer.result(answer.volume().rmdir(parent, name, AskPool::kNo));
  });
}

void op_rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
               const char* new_name, unsigned flags) noexcept {
  Reply reply(request, Operation::kRename);
  const bool waits = look_here(reply, [&](Volume& volume) {
    return volume.rename_waits_for_disk(parent, name, new_parent, new_name, flags);
  });
  const bool asks_pool =
      look_here(reply, [&](Volume& volume) { return volume.rename_asks_pool(parent, name); });
  if (asks_pool && run_on_pool(reply, [parent, from = std::string(name), new_parent,
                                       to = std::string(new_name), flags,
                                       caller = caller_of(request)](Reply& answer) {
        answer.result(answer.volume().rename(parent, from, new_parent, to, flags, caller));
      }))
    return;
  const auto rename = [parent, from = std::string(name), new_parent, to = std::string(new_name),
                       flags, waits, caller = caller_of(request)](Reply& answer) {
    answer.result(answer.volume().rename(parent, from, new_parent, to, flags, caller, waits));
  };
  const auto disk =
      waits ? look_or(
                  reply, [=](Volume& volume) { return volume.disk_of(parent, name); }, kNoDisk)
            : kNoDisk;
  waits ? run_slowly(std::move(reply), disk, rename) : run_change(std::move(reply), rename);
}

void op_link(fuse_req_t request, fuse_ino_t inode, fuse_ino_t new_parent,
             const char* new_name) noexcept {
  Reply reply(request, Operation::kLink);
  const bool waits = look_here(
      reply, [&](Volume& volume) { return volume.waits_for_disk(new_parent, new_name); });
  const auto link = [inode, new_parent, name = std::string(new_name), waits,
                     caller = caller_of(request)](Reply& answer) {
    const Result<Entry> linked = answer.volume().link(inode, new_parent, name, caller, waits);
    answer_entry(std::move(answer), linked);
  };
  const auto disk =
      waits ? look_or(
                  reply, [=](Volume& volume) { return volume.disk_of(inode); }, kNoDisk)
            : kNoDisk;
  waits ? run_slowly(std::move(reply), disk, link) : run_change(std::move(reply), link);
}

}  // namespace kvcachefs
