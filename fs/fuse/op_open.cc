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
  const Caller caller = caller_of(request);
  const int flags = info->flags;
  const OpenCost cost = look_or(
      reply, [=](Volume& volume) { return volume.open_cost(inode, flags); },
      OpenCost::kWaitsForDisk);
  const OpenCheck check = cost == OpenCost::kChanges ? OpenCheck::kSkip : OpenCheck::kVerify;
  // The request's memory is gone when this handler returns.
  const auto open = [inode, caller, check, copy = *info](Reply& answer) {
    fuse_file_info answered = copy;
    answer_opened(answer, answer.volume().open(inode, answered.flags, caller, check), answered);
  };
  if (cost == OpenCost::kChanges) return run_change(std::move(reply), open);
  if (cost == OpenCost::kQuick)
    return run_look(
        std::move(reply),
        [=](Volume& volume) { return volume.open(inode, flags, caller, OpenCheck::kSkip); },
        [copy = *info](Reply& answer, const Result<Opened>& opened) {
          fuse_file_info answered = copy;
          answer_opened(answer, opened, answered);
        });
  if (cost == OpenCost::kWaitsForDisk) {
    const auto disk = look_or(
        reply, [=](Volume& volume) { return volume.disk_of(inode); }, kNoDisk);
    return run_slowly(std::move(reply), disk, open);
  }
  if (!run_on_pool(reply, open)) reply.error(fail(ENOENT, "too many wait for the pool"));
}

void op_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kCreate);
  run_change(std::move(reply), [parent, name = std::string(name), mode, copy = *info,
                                caller = caller_of(request)](Reply& answer) {
    fuse_file_info answered = copy;
    const Result<Created> created =
        answer.volume().create(parent, name, mode, answered.flags, caller);
    answer_created(std::move(answer), created, answered);
  });
}

void op_tmpfile(fuse_req_t request, fuse_ino_t parent, mode_t mode,
                fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kTmpfile);
  run_change(std::move(reply),
             [parent, mode, copy = *info, caller = caller_of(request)](Reply& answer) {
               fuse_file_info answered = copy;
               const Result<Created> created =
                   answer.volume().make_tmpfile(parent, mode, answered.flags, caller);
               answer_created(std::move(answer), created, answered);
             });
}

// The kernel waits for nothing that follows the answer, and counts it among those that it sends
// in the background (fuse_file_put(), fs/fuse/file.c): those of a disk that takes no writes
// must not keep reads of others from being sent. So what waits comes after the answer.
void op_release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kRelease);
  OperationContext& context = reply.context();
  OpenFile& file = *reply.file(info);
  Volume::had_flags(file, info->flags);
  const auto at_once = [&file](Volume& volume) { return volume.release_at_once(file); };
  if (look_or(reply, at_once, false)) return reply.ok();
  const std::uint32_t user = caller_of(request).uid;
  const auto disk = reply.volume().disk_of(file);
  context.parked.fetch_add(1);
  reply.ok();
  const auto release = [&context, &file] {
    context.volume->release(file);
    context.parked.fetch_sub(1);
  };
  if (!context.is_ring) {
    const OwnChange own(context);
    if (own.may()) return release();
  }
  // As many wait at most as there are open files; none at the end, when workers go.
  FairPool* const workers = change_workers(context);
  const Kind kind = disk ? Kind::kOfDisk : Kind::kAny;
  if (context.parked_limit.load() == 0 || workers == nullptr ||
      !workers->try_post(party_of(user, kind, disk.value_or(0)), release))
    release();
}

}  // namespace kvcachefs
