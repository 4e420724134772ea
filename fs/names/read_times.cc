#include "fs/names/read_times.h"

#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "fs/life/states.h"
#include "fs/node/core.h"

namespace kvcachefs {
namespace {

constexpr UnixNanos kDay = UnixNanos{24} * 3600 * 1'000'000'000;

bool is_due(const InodeRecord& record, UnixNanos last, UnixNanos now) noexcept {
  return last <= record.mtime || last <= record.ctime || now - last >= kDay;
}

}  // namespace

AccessTimes ReadTimes::times_of(const Inode& inode) const noexcept {
  if (inode.type == S_IFDIR) return options_.directories;
  return inode.type == S_IFLNK ? options_.symlinks : AccessTimes::kNever;
}

bool ReadTimes::note(const InodePtr& inode) {
  const AccessTimes times = times_of(*inode);
  if (times == AccessTimes::kNever) return false;
  const InodeRecord record = inode->shown();
  const UnixNanos now = file_clock_now();
  const UnixNanos before = inode->read_at.load();
  const UnixNanos last = before != 0 ? before : record.atime;
  if (now == last || (times != AccessTimes::kAlways && !is_due(record, last, now)))
    return false;
  const std::lock_guard lock(mutex_);
  // An inode that waits is written with the time that it has then.
  if (before == 0) {
    if (waiting_.size() >= kMost) return false;
    waiting_.push_back(inode);
  }
  inode->read_at.store(now);
  return true;
}

void ReadTimes::write(Core& core) {
  std::vector<InodePtr> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting = std::exchange(waiting_, {});
  }
  for (const InodePtr& inode : waiting) {
    if (!write_one(core, *inode)) {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(inode);
    }
  }
}

bool ReadTimes::write_one(Core& core, Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  UnixNanos read_at = inode.read_at.load();
  if (read_at != 0 && read_at != inode.record.atime && inode.record.nlink > 0) {
    InodeRecord next = inode.record;
    next.atime = read_at;
    if (const Result<void> written = commit_record(core, inode, std::move(next), Edit{});
        !written.ok())
      log_debug("access time not written inode={} errno={}", inode.number,
                written.error().code);
  }
  return inode.read_at.compare_exchange_strong(read_at, 0);
}

void ReadTimes::show(const Inode& inode, struct stat& attributes) noexcept {
  const UnixNanos read_at = inode.read_at.load();
  if (read_at != 0) attributes.st_atim = to_timespec(read_at);
}

}  // namespace kvcachefs
