#include "fs/life/sync_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>

#include "backend/base/log.h"
#include "fs/node/attributes.h"

namespace kvcachefs {
namespace {

// A store has to move the modification time to be noticed. The clock of files ticks every 1 to 10 ms (and
// for who asks in between, from Linux 6.13 on): one that comes in the tick of the last one would not.
void let_the_clock_tick(UnixNanos newest) noexcept {
  constexpr UnixNanos kTick = 10'000'000;
  const UnixNanos age = file_clock_now() - newest;
  if (age < 0 || age > kTick) return;
  const timespec rest = to_timespec(kTick - age + kTick);
  ::nanosleep(&rest, nullptr);
}

void note(int& error, int code) {
  if (error == 0) error = code;
}

// All are begun before one is waited for. The second call writes what was written to while the first one's were on
// their way, and waits (WB_SYNC_ALL, fs/sync.c).
void write_out(std::vector<FileToSync>& files) {
  constexpr unsigned kSteps[] = {SYNC_FILE_RANGE_WRITE, SYNC_FILE_RANGE_WRITE_AND_WAIT};
  for (const unsigned step : kSteps)
    for (FileToSync& file : files)
      if (file.stamp && ::sync_file_range(file.fd, 0, 0, step) != 0) note(file.error, errno);
}

// Of others, as overlayfs, it is not known that sync_file_range(2) writes out, and says each file's errors.
bool can_sync_together(int fd) {
  struct statfs below {};
  if (::fstatfs(fd, &below) != 0) return false;
  switch (below.f_type) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case TMPFS_MAGIC:
      return true;
    default:
      return false;
  }
}

// What was written out is on the medium, and its sizes and places are in the journal. The file that is synced on its own is
// for the flush: where the journal has nothing to write, syncfs(2) of xfs does not flush.
bool commit(Devices& devices, std::uint32_t device, FileToSync& any) {
  const Result<void> synced = devices.at(device).sync();
  if (!synced.ok()) log_warn("device sync failed errno={}", synced.error().code);
  if (!synced.ok()) return false;
  if (::fdatasync(any.fd) == 0) return true;
  note(any.error, errno);
  return false;
}

}  // namespace

void sync_together(Devices& devices, std::vector<FileToSync>& files) {
  const UnixNanos now = file_clock_now();
  UnixNanos newest = 0;
  std::map<std::uint32_t, bool> together;  // by device
  for (FileToSync& file : files) {
    const auto [at, is_first] = together.try_emplace(file.device, false);
    if (is_first) at->second = can_sync_together(file.fd);
    struct stat before {};
    if (!at->second || ::fstat(file.fd, &before) != 0) continue;
    file.stamp = stamp_of(before);
    // What somebody has dated ahead says nothing of the clock.
    if (file.stamp->mtime <= now) newest = std::max(newest, file.stamp->mtime);
  }
  let_the_clock_tick(newest);
  write_out(files);
  for (const auto& one : together) {
    const std::uint32_t device = one.first;
    const auto any = std::find_if(files.begin(), files.end(), [device](const FileToSync& file) {
      return file.device == device && file.stamp;
    });
    if (any == files.end() || commit(devices, device, *any)) continue;
    for (FileToSync& file : files)
      if (file.device == device && file.error == 0) file.stamp.reset();
  }
}

Result<void> sync_alone(FileToSync& file) {
  struct stat before {};
  if (::fstat(file.fd, &before) != 0) return fail_errno("status of a backing file");
  file.stamp = stamp_of(before);
  let_the_clock_tick(file.stamp->mtime);
  if (::fdatasync(file.fd) != 0) note(file.error, errno);
  return {};
}

}  // namespace kvcachefs
