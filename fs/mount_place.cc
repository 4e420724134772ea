#include "fs/mount_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "backend/base/file_lock.h"
#include "backend/base/log.h"
#include "backend/base/unique_fd.h"
#include "fs/foreign_entry.h"
#include "fs/mount_table.h"
#include "fs/refuse.h"
#include "fs/state_dir.h"

namespace kvcachefs {
namespace {

// Mounts stacked on one point by repeated crashes; more than that is something else's doing.
constexpr int kMaxStacked = 16;

bool may_administrate() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return false;
  return (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

bool users_may_allow_other() {
  std::ifstream file("/etc/fuse.conf");
  std::string line;
  while (std::getline(file, line)) {
    while (!line.empty() &&
           (line.back() == ' ' || line.back() == '\r' || line.back() == '\t')) {
      line.pop_back();
    }
    if (line == "user_allow_other") return true;
  }
  return false;
}

bool is_dead(int code) { return code == ENOTCONN || code == ECONNABORTED; }

// Takes the dead mounts of ours off the point, the topmost first.
Result<void> detach_dead(const std::string& mountpoint, const Note& note,
                         std::string& problem) {
  for (int i = 0; i < kMaxStacked; ++i) {
    // A dead mount's attributes may still be in the kernel's cache; this is always asked.
    struct statfs status;
    if (::statfs(mountpoint.c_str(), &status) == 0 || !is_dead(errno)) return {};
    const auto table = TRY(read_mount_table());
    const auto entry = mount_on(table, mountpoint);
    if (!entry || !entry->is_ours()) {
      return refuse(
          problem,
          fmt::format("mount point: {}: a dead mount of {} is there: umount {}", mountpoint,
                      entry ? entry->type : "another filesystem", mountpoint),
          ENOTCONN);
    }
    if (::umount2(mountpoint.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
      const int code = errno;
      return refuse(problem,
                    fmt::format("mount point: {}: a dead mount cannot be taken away: "
                                "{}: umount -l {}",
                                mountpoint, std::strerror(code), mountpoint),
                    code);
    }
    log_warn("mount event=took_over_dead_mount mountpoint={}", mountpoint);
    note(fmt::format("{}: a mount left by a daemon that had died was taken away", mountpoint));
  }
  return refuse(problem,
                fmt::format("mount point: {}: too many dead mounts: umount -l {}", mountpoint,
                            mountpoint),
                EBUSY);
}

}  // namespace

Result<void> check_privileges(bool allow_other, std::string& problem) {
  if (allow_other && ::geteuid() != 0 && !users_may_allow_other()) {
    return refuse(
        problem,
        "--allow-other: a user may not: put user_allow_other into /etc/fuse.conf, or mount "
        "as root",
        EACCES);
  }
  if (!may_administrate()) {
    return refuse(
        problem,
        fmt::format("mount: uid {} lacks CAP_SYS_ADMIN: run as root, in a container with "
                    "--cap-add SYS_ADMIN",
                    ::geteuid()),
        EPERM);
  }
  const UniqueFd device{::open("/dev/fuse", O_RDWR | O_CLOEXEC)};
  if (device) return {};
  const int code = errno;
  const char* fix = code == EPERM || code == EACCES
                        ? "allow it, in a container with --device /dev/fuse"
                        : "modprobe fuse, in a container --device /dev/fuse";
  return refuse(problem, fmt::format("mount: /dev/fuse: {}: {}", std::strerror(code), fix),
                code);
}

Result<void> take_mount_point(const std::string& mountpoint, AnswerProbe& probe,
                              const Note& note, std::string& problem) {
  const auto answers = probe.ask(mountpoint, kAnswerPatience);
  if (!answers) {
    const int code = answers.error().code;
    if (is_dead(code)) {
      TRY(detach_dead(mountpoint, note, problem));
    } else if (code == ETIMEDOUT) {
      return refuse(
          problem,
          fmt::format("mount point: {}: what is mounted there does not answer: umount -l {}",
                      mountpoint, mountpoint),
          code);
    } else {
      return refuse(problem,
                    fmt::format("mount point: {}: {}: {}", mountpoint, std::strerror(code),
                                code == ENOENT ? "make the directory first: mkdir -p"
                                               : "name another directory"),
                    code);
    }
  }
  struct stat status;
  if (::lstat(mountpoint.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return refuse(problem,
                  fmt::format("mount point: {}: not a directory: name a directory", mountpoint),
                  ENOTDIR);
  }
  const auto table = TRY(read_mount_table());
  const auto entry = mount_on(table, mountpoint);
  if (entry && entry->is_ours()) {
    const pid_t holder = FileLock::holder(lock_path_of(state_of(*entry)));
    return refuse(
        problem,
        fmt::format("mount point: {}: kvcachefs is mounted there already (pid {}): kvcachefs "
                    "umount {}",
                    mountpoint, holder, mountpoint),
        EBUSY);
  }
  return {};
}

Result<void> refuse_nonempty(const std::string& mountpoint, std::string& problem) {
  const std::string other = foreign_entry(mountpoint, [](const std::string&) { return false; });
  if (other.empty()) return {};
  return refuse(problem,
                fmt::format("mount point: {}: holds other things ({:?}), which the mount would "
                            "hide: name an empty "
                            "directory, or give --nonempty",
                            mountpoint, other),
                ENOTEMPTY);
}

}  // namespace kvcachefs
