// GETATTR, SETATTR, STATFS.
#include <fcntl.h>

#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

std::optional<UnixNanos> time_of(int to_set, int given, int now,
                                 const timespec& time) noexcept {
  if ((to_set & now) != 0) return kTimeNow;
  if ((to_set & given) != 0) return to_nanos(time);
  return std::nullopt;
}

// The kernel's FATTR_KILL_SUIDGID, which libfuse passes under another name.
constexpr int kKillSetIdBits = 1 << 11;

SetAttributes decode(const struct stat& attributes, int to_set) noexcept {
  SetAttributes change;
  if ((to_set & FUSE_SET_ATTR_MODE) != 0) change.mode = attributes.st_mode;
  if ((to_set & FUSE_SET_ATTR_UID) != 0) change.uid = attributes.st_uid;
  if ((to_set & FUSE_SET_ATTR_GID) != 0) change.gid = attributes.st_gid;
  if ((to_set & FUSE_SET_ATTR_SIZE) != 0) {
    change.size = static_cast<std::uint64_t>(attributes.st_size);
  }
  change.atime =
      time_of(to_set, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, attributes.st_atim);
  change.mtime =
      time_of(to_set, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, attributes.st_mtim);
  change.ctime = time_of(to_set, FUSE_SET_ATTR_CTIME, 0, attributes.st_ctim);
  // A request that sets nothing is how the kernel, before a passthrough write, says that
  // privileges have to go.
  change.kill_suid_sgid = (to_set & kKillSetIdBits) != 0 || to_set == 0;
  return change;
}

void answer_attributes(Reply& reply, const Result<AttributesReply>& attributes) noexcept {
  if (!attributes) return reply.error(attributes.error());
  reply.attributes(*attributes);
}

auto ask_attributes(fuse_ino_t inode, const OpenFile* file, const Caller& caller) {
  return [=](Volume& volume) { return volume.attributes(inode, file, caller); };
}

}  // namespace

void op_getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kGetattr);
  const auto ask = ask_attributes(inode, reply.file(info), caller_of(request));
  run_look(std::move(reply), ask, answer_attributes);
}

#ifdef KVCACHEFS_HAVE_STATX
// The kernel asks so when somebody wants the time of birth.
void op_statx(fuse_req_t request, fuse_ino_t inode, int, int, fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kGetattr);
  const auto ask = ask_attributes(inode, reply.file(info), caller_of(request));
  run_look(std::move(reply), ask, [](Reply& answer, const Result<AttributesReply>& found) {
    found ? answer.statx(*found) : answer.error(found.error());
  });
}
#endif

void op_setattr(fuse_req_t request, fuse_ino_t inode, struct stat* attributes, int to_set,
                fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kSetattr);
  const SetAttributes change = decode(*attributes, to_set);
  OpenFile* const file = reply.file(info);
  const Caller caller = caller_of(request);
  // A file is cut where its bytes are.
  const auto ask = [inode](Volume& volume) { return volume.open_cost(inode, O_WRONLY); };
  if (change.size && file == nullptr &&
      look_or(reply, ask, OpenCost::kChanges) == OpenCost::kWaitsForPool) {
    if (!run_on_pool(reply, [inode, change, caller](Reply& answer) {
          answer_attributes(answer,
                            answer.volume().set_attributes(inode, change, nullptr, caller));
        }))
      reply.error(fail(EIO, "too many wait for the pool"));
    return;
  }
  const auto disk = look_or(
      reply, [inode](Volume& volume) { return volume.disk_of(inode); }, kNoDisk);
  // A file in very many pieces takes long to cut.
  run_change(
      std::move(reply),
      [inode, change, file, caller](Reply& answer) {
        answer_attributes(answer, answer.volume().set_attributes(inode, change, file, caller));
      },
      disk, change.size ? NoPlace::kAskAgain : NoPlace::kHere);
}

void op_statfs(fuse_req_t request, fuse_ino_t inode) noexcept {
  Reply reply(request, Operation::kStatfs);
  run_look(
      std::move(reply), [inode](Volume& volume) { return volume.statfs(inode); },
      [](Reply& answer, const Result<struct statvfs>& space) {
        space ? answer.space(*space) : answer.error(space.error());
      });
}

}  // namespace kvcachefs
