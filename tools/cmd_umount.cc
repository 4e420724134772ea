// kvcachefs umount [--lazy] MOUNTPOINT
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "backend/base/clock.h"
#include "backend/base/unique_fd.h"
#include "fs/answer_probe.h"
#include "fs/control.h"
#include "fs/stuck_daemon.h"
#include "tools/busy.h"
#include "tools/commands.h"
#include "tools/find_mount.h"

namespace kvcachefs {
namespace {

// A daemon whose disk or CPUs are busy answers late, and is to be unmounted all the same;
// --lazy detaches sooner.
constexpr std::chrono::milliseconds kBusyPatience = std::chrono::seconds{20};
// Longer than the daemon takes to end by itself, as long as nobody uses the mount.
constexpr std::chrono::milliseconds kEndPatience = std::chrono::seconds{120};
// After this who has it in a mount namespace of his own is looked for: as long as he has, it does not end. One that only comes and
// goes is waited for.
constexpr std::chrono::milliseconds kSoon = std::chrono::seconds{30};
constexpr int kEndPollMs = 200;
// For a daemon that has not answered: it may have been in the middle of its end.
constexpr std::chrono::milliseconds kHungPatience = std::chrono::seconds{1};
// The kernel lets go of a file, or of what an ended process had, a moment after its user.
constexpr std::chrono::nanoseconds kUserPatience = std::chrono::seconds{1};
constexpr useconds_t kBusyPauseUs = 20'000;

struct UmountArguments {
  std::string path;
  bool lazy = false;
};

int give_up(std::string_view problem) {
  complain(problem);
  return kExitFailed;
}

struct Process {
  pid_t pid;
  UniqueFd fd;  // invalid: there is none any more
};

// pidfd_open(2), which this C library does not wrap.
Process open_process(pid_t pid) {
  return {pid, UniqueFd{pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1}};
}

// It has called exit(), but the kernel does not let go of a thread: one that waits for a pool that is away. Nothing is its
// own any more.
bool is_over(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat.compare(name_end + 2, 1, "Z") == 0;
}

bool has_ended(const Process& process, std::chrono::milliseconds patience) {
  if (!process.fd) return true;
  const std::int64_t deadline = monotonic_now() + std::chrono::nanoseconds(patience).count();
  pollfd ended{process.fd.get(), POLLIN, 0};
  while (::poll(&ended, 1, kEndPollMs) <= 0) {
    if (is_over(process.pid)) return true;
    if (monotonic_now() >= deadline) return false;
  }
  return true;
}

std::string users_of(dev_t device) {
  const auto processes = processes_on(device);
  if (!processes.empty()) return describe(processes);
  return "no process: perhaps another mount, a loop device or a swap file on it";
}

// 0, or an errno.
int detach(const FoundMount& mount, int flags) {
  const std::int64_t deadline = monotonic_now() + kUserPatience.count();
  while (::umount2(mount.entry.point.c_str(), flags) != 0) {
    if (errno != EBUSY) return errno;
    if (monotonic_now() >= deadline || !processes_on(mount.entry.device).empty()) return EBUSY;
    ::usleep(kBusyPauseUs);
  }
  return 0;
}

// The daemon has died: what is left is its entry in the mount table.
int clean_up_dead(const FoundMount& mount) {
  if (::umount2(mount.entry.point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0) {
    return give_up(
        fmt::format("umount: {}: {}: run as root", mount.entry.point, std::strerror(errno)));
  }
  print_out("kvcachefs: {}: its daemon had died; the mount point is free again\n",
            mount.entry.point);
  return kExitOk;
}

int report_failure(const FoundMount& mount, int code) {
  const std::string& point = mount.entry.point;
  switch (code) {
    case EBUSY:
      return give_up(fmt::format("umount: {}: busy, used by {}: end them, or use --lazy", point,
                                 users_of(mount.entry.device)));
    case EPERM:
      return give_up(fmt::format("umount: {}: not permitted: run as root", point));
    default:
      return give_up(
          fmt::format("umount: {}: {}: see findmnt {}", point, std::strerror(code), point));
  }
}

// Unmounted here, and yet the daemon goes on.
int report_survivor(const FoundMount& mount, bool lazy) {
  const std::string& point = mount.entry.point;
  if (lazy) {
    print_out("kvcachefs: {}: detached; pid {} ends with the last user: {}\n", point,
              mount.daemon, users_of(mount.entry.device));
    return kExitOk;
  }
  return give_up(
      fmt::format("umount: {}: unmounted, but pid {} still serves {}: end them, or stop it "
                  "with kill {}",
                  point, mount.daemon, users_of(mount.entry.device), mount.daemon));
}

// Detached by --lazy from a daemon that answers nobody, for nobody knows how long.
int report_hung(const FoundMount& mount) {
  print_out(
      "kvcachefs: {}: detached; its daemon (pid {}) does not answer: it ends when it does "
      "again, or by kill -9 {}\n",
      mount.entry.point, mount.daemon, mount.daemon);
  return kExitOk;
}

// Of a bind mount: the others stay, and so does the daemon.
std::optional<std::string> other_mount(const FoundMount& mount) {
  const auto table = read_mount_table();
  if (!table) return std::nullopt;
  for (const MountEntry& entry : *table)
    if (entry.device == mount.entry.device) return entry.point;
  return std::nullopt;
}

int umount(const UmountArguments& arguments) {
  auto probe = AnswerProbe::prepare();
  if (!probe) return give_up("umount: no process can be started: end some");
  std::string problem;
  const auto mount = find_mount(arguments.path, FindMount::kExactly, problem);
  if (!mount) return give_up(fmt::format("umount: {}", problem));
  const std::string& point = mount->entry.point;

  const auto answers = probe->ask(point, arguments.lazy ? kAnswerPatience : kBusyPatience);
  if (!answers && (answers.error().code == ENOTCONN || answers.error().code == ECONNABORTED)) {
    return clean_up_dead(*mount);
  }
  const bool hangs = !answers && answers.error().code == ETIMEDOUT;
  // Killed, and waiting for one who waits for it: what it served is aborted by that.
  if (hangs && end_stuck_daemon(mount->state, complain)) return clean_up_dead(*mount);
  if (hangs && !arguments.lazy) {
    return give_up(
        fmt::format("umount: {}: its daemon (pid {}) does not answer: use --lazy, then kill "
                    "it",
                    point, mount->daemon));
  }
  // Opened before the mount goes, so that it cannot be another process by then.
  const Process daemon = open_process(mount->daemon);
  const int flags = UMOUNT_NOFOLLOW | (arguments.lazy ? MNT_DETACH : 0);
  if (const int code = detach(*mount, flags); code != 0) return report_failure(*mount, code);
  if (const auto other = other_mount(*mount)) {
    print_out("kvcachefs: {}: unmounted; it is still mounted at {}\n", point, *other);
    return kExitOk;
  }
  if (arguments.lazy) {
    // It would serve what is open for ever: ask it for a bounded end. No answer: it has ended
    // by itself.
    const auto asked =
        control_request(mount->state, "stop", hangs ? kHungPatience : kAnswerPatience);
    const bool silent = hangs || (!asked && asked.error().code == ETIMEDOUT);
    if (silent && !has_ended(daemon, kHungPatience)) return report_hung(*mount);
  }
  const auto is_used_elsewhere = [&] {
    return !arguments.lazy && !processes_on(mount->entry.device).empty();
  };
  if (has_ended(daemon, kSoon)) return kExitOk;
  if (!is_used_elsewhere() && has_ended(daemon, kEndPatience - kSoon)) return kExitOk;
  return report_survivor(*mount, arguments.lazy);
}

}  // namespace

void add_umount(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<UmountArguments>();
  CLI::App* command =
      app.add_subcommand("umount", "Unmounts; returns when the daemon has ended");
  command->add_option("MOUNTPOINT", arguments->path, "The mount point")
      ->required()
      ->type_name("");
  command->add_flag("--lazy", arguments->lazy,
                    wrap_help("Detaches a busy mount now; what is open is served until it is "
                              "closed, at most for the mount's stop-timeout"));
  command->callback([arguments, &exit_code] { exit_code = umount(*arguments); });
}

}  // namespace kvcachefs
