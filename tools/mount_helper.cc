// mount.kvcachefs: what mount(8) calls for `mount -t kvcachefs DIR MOUNTPOINT` and for lines of
// fstab. It runs `kvcachefs mount` with the same meaning, or changes the flags of a running
// mount (remount).
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backend/base/unique_fd.h"
#include "backend/base/visible.h"
#include "fs/control.h"
#include "tools/commands.h"
#include "tools/find_mount.h"
#include "tools/helper_arguments.h"

namespace kvcachefs {
namespace {

// Exit codes of mount(8).
constexpr int kMountUsage = 1;
constexpr int kMountSystem = 2;
constexpr int kMountFailed = 32;

int refuse(int code, std::string_view problem) {
  const std::string line = fmt::format("mount.kvcachefs: {}\n", visible_message(problem));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return code;
}

// kvcachefs beside this program, or in the bin directory beside its sbin.
std::string find_kvcachefs() {
  std::array<char, PATH_MAX> self;
  const ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size());
  if (length > 0) {
    std::string directory(self.data(), static_cast<std::size_t>(length));
    directory.resize(directory.rfind('/'));
    for (const char* candidate : {"/kvcachefs", "/../bin/kvcachefs"}) {
      const std::string path = directory + candidate;
      if (::access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return "/usr/bin/kvcachefs";
}

Result<void> enter_namespace(const std::string& name) {
  const bool is_pid = name.find_first_not_of("0123456789") == std::string::npos;
  const std::string path = is_pid ? "/proc/" + name + "/ns/mnt" : name;
  const UniqueFd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!fd) return fail_errno("open the mount namespace");
  if (::setns(fd.get(), CLONE_NEWNS) != 0) return fail_errno("enter the mount namespace");
  return {};
}

// Runs it and turns its exit code into one of mount(8).
int run_kvcachefs(std::vector<std::string> command, bool verbose) {
  command.insert(command.begin(), find_kvcachefs());
  if (verbose) print_out("mount.kvcachefs: {}\n", fmt::join(command, " "));
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    return refuse(kMountSystem,
                  fmt::format("fork: {}: end some processes", std::strerror(errno)));
  }
  if (child == 0) {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    fmt::print(stderr, "mount.kvcachefs: {}: {}: install kvcachefs beside mount.kvcachefs\n",
               argv[0], std::strerror(errno));
    ::_exit(kExitFailed);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitOk) return 0;
  return WIFEXITED(status) && WEXITSTATUS(status) == kExitUsage ? kMountUsage : kMountFailed;
}

// A daemon that was started read-only stays so, whatever the kernel would allow.
bool started_read_only(const FoundMount& mount) {
  const auto answer = control_request(mount.state, "status");
  if (!answer) return false;
  const auto status = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  return status.is_object() && status.contains("read_only") && status["read_only"] == true;
}

int remount(const HelperArguments& arguments, const FoundMount& mount, const Remount& change) {
  const std::string& point = mount.entry.point;
  if (change.asks_write && started_read_only(mount)) {
    return refuse(kMountFailed,
                  fmt::format("remount: {}: it was mounted read-only: unmount it and mount "
                              "it anew",
                              point));
  }
  if (arguments.fake) return 0;
  if (::mount(mount.entry.source.c_str(), point.c_str(), nullptr, change.flags, nullptr) != 0) {
    const char* fix =
        errno == EBUSY ? "close the files that are open for writing" : "run as root";
    return refuse(kMountFailed,
                  fmt::format("remount: {}: {}: {}", point, std::strerror(errno), fix));
  }
  return 0;
}

int run(const std::vector<std::string>& words) {
  std::string problem;
  const auto arguments = parse_helper_arguments(words, problem);
  if (!arguments) return refuse(kMountUsage, problem);
  if (!arguments->mount_namespace.empty()) {
    const auto entered = enter_namespace(arguments->mount_namespace);
    if (!entered) {
      return refuse(kMountFailed, fmt::format("-N: {}: {}: name a pid or a namespace file",
                                              arguments->mount_namespace,
                                              std::strerror(entered.error().code)));
    }
  }
  // A list that asks for no remount needs no mount to be there.
  const auto asked = parse_remount(arguments->options, "", problem);
  if (!asked) return refuse(kMountUsage, problem);
  if (*asked) {
    const auto mount = find_mount(arguments->directory, FindMount::kExactly, problem);
    if (!mount) return refuse(kMountFailed, fmt::format("remount: {}", problem));
    const auto change = parse_remount(arguments->options, mount->entry.options, problem);
    if (!change) return refuse(kMountUsage, problem);
    return remount(*arguments, *mount, **change);
  }
  if (arguments->fake) return 0;
  return run_kvcachefs(mount_command(*arguments), arguments->verbose);
}

}  // namespace
}  // namespace kvcachefs

int main(int argc, char** argv) {
  return kvcachefs::run(std::vector<std::string>(argv + 1, argv + argc));
}
