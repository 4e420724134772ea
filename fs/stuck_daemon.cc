#include "fs/stuck_daemon.h"

#include <fmt/format.h>
#include <sys/mount.h>

#include <cerrno>

#include "backend/base/file_lock.h"
#include "backend/base/log.h"
#include "backend/base/proc_status.h"
#include "fs/mount_table.h"
#include "fs/state_dir.h"

namespace kvcachefs {

bool end_stuck_daemon(const std::string& state, const Note& note) {
  const pid_t holder = FileLock::holder(lock_path_of(state));
  if (holder == 0 || !proc_status(holder, "State").starts_with('Z')) return false;
  const auto table = read_mount_table();
  if (!table.ok()) return false;
  bool aborted = false;
  for (const MountEntry& entry : *table) {
    if (!entry.is_ours() || state_of(entry) != state) continue;
    // Aborts the connection, and then mostly fails, as somebody is inside. The dead mount is taken away
    // like any other.
    const bool gone = ::umount2(entry.point.c_str(), MNT_FORCE | UMOUNT_NOFOLLOW) == 0;
    if (!gone && errno != EBUSY) continue;
    aborted = true;
    log_warn("mount event=ended_stuck_daemon pid={} mountpoint={}", holder, entry.point);
    note(
        fmt::format("{}: the daemon (pid {}) had been killed and could not end: its mount was "
                    "aborted",
                    entry.point, holder));
  }
  return aborted;
}

}  // namespace kvcachefs
