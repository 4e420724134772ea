// OPEN, CREATE, O_TMPFILE, RELEASE.
#include <fcntl.h>

#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

void answer_opened(Reply& reply, const Result<Opened>& opened, fuse_file_info& info) noexcept {
  if (!opened) return reply.error(opened.error());
  Volume& volume = reply.volume();
  if (!reply.opened(*opened, info)) volume.release(*opened->file);
}

void answer_created(Reply reply, const Result<Created>& created,
                    fuse_file_info& info) noexcept {
  if (!created) return reply.error(created.error());
  Volume& volume = reply.volume();
  if (reply.created(*created, info)) return;
  // Nobody took it: the file stays, as after an open(2) that a signal ended too late.
  volume.release(*created->opened.file);
  volume.forget(created->entry.inode, 1);
}

}  // namespace

void op_open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kOpen);
  Volume& volume = reply.volume();
  const Caller caller = caller_of(request);
  const OpenCost cost = volume.open_cost(inode, info->flags);
  if (cost == OpenCost::kQuick)
    return answer_opened(reply, volume.open(inode, info->flags, caller, OpenCheck::kSkip),
                         *info);
  // The request's memory is gone when this handler returns.
  const auto open = [inode, caller, copy = *info](Reply& answer) {
    fuse_file_info answered = copy;
    answer_opened(answer, answer.volume().open(inode, answered.flags, caller), answered);
  };
  if (cost == OpenCost::kWaitsForDisk) return run_slowly(std::move(reply), open);
  if (!run_on_pool(reply, open)) reply.error(fail(ENOENT, "too many wait for the pool"));
}

void op_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kCreate);
  const Result<Created> created =
      reply.volume().create(parent, name, mode, info->flags, caller_of(request));
  answer_created(std::move(reply), created, *info);
}

void op_tmpfile(fuse_req_t request, fuse_ino_t parent, mode_t mode,
                fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kTmpfile);
  const Result<Created> created =
      reply.volume().make_tmpfile(parent, mode, info->flags, caller_of(request));
  answer_created(std::move(reply), created, *info);
}

void op_release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kRelease);
  reply.volume().release(*reply.file(info));
  reply.ok();
}

}  // namespace kvcachefs
