#include "tools/export_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backend/base/unique_fd.h"
#include "backend/base/visible.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/find_mount.h"

namespace kvcachefs {
namespace {

constexpr const char* kProgram = "ganesha.nfsd";
constexpr const char* kServes = "NFS SERVER INITIALIZED";
constexpr const char* kOtherWork = "name another directory with --work";
// What an export makes in its directory.
constexpr std::array<std::string_view, 7> kOwnNames{
    "ganesha.conf", "recovery", "lock", "log", "out", "pid", "lost+found"};
constexpr const char* kNothing = "No export entries found";

void say(const std::string& text) {
  print_out("{}\n", text);
  std::fflush(stdout);
}

// As a shell finds it; the system's own folders are not in everybody's PATH.
std::string find_program(std::string_view name) {
  const char* set = std::getenv("PATH");
  std::string folders = set == nullptr ? "" : set;
  folders += ":/usr/sbin:/usr/local/sbin:/sbin";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string path = fmt::format("{}/{}", folders.substr(begin, end - begin), name);
    if (path.front() == '/' && ::access(path.c_str(), X_OK) == 0 && end > begin) return path;
    begin = end + 1;
  }
  return {};
}

std::string read_all(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool write_all(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return !file.fail();
}

// Whether the directory may be the server's own: ours alone, and with nothing in it that no export has made. Others'
// are not closed to them. `problem` says why not.
bool is_usable(const std::string& path, std::string& problem) {
  // By descriptor: what was looked at is what is changed.
  const UniqueFd directory{
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  struct stat status {};
  if (!directory || ::fstat(directory.get(), &status) != 0) {
    problem = fmt::format("{}: not a directory: {}", path, kOtherWork);
    return false;
  }
  if (status.st_uid != ::geteuid()) {
    problem = fmt::format("{}: belongs to uid {}: {}", path, status.st_uid, kOtherWork);
    return false;
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    problem = fmt::format("{}: other users may write to it: {}", path, kOtherWork);
    return false;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (std::find(kOwnNames.begin(), kOwnNames.end(), name) != kOwnNames.end()) continue;
    problem = fmt::format("{}: holds other things ({}): {}", path, visible(name), kOtherWork);
    return false;
  }
  if (!error && ::fchmod(directory.get(), 0700) == 0) return true;
  problem = fmt::format("{}: {}: {}", path, error ? error.message() : std::strerror(errno),
                        kOtherWork);
  return false;
}

// Whether the server can listen there. `problem` says why not.
bool is_free(std::string_view option, const std::string& address, std::uint16_t port,
             std::string& problem) {
  sockaddr_storage where{};
  socklen_t length = sizeof(sockaddr_in);
  auto* four = reinterpret_cast<sockaddr_in*>(&where);
  auto* six = reinterpret_cast<sockaddr_in6*>(&where);
  if (::inet_pton(AF_INET, address.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
  } else {
    ::inet_pton(AF_INET6, address.c_str(), &six->sin6_addr);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    length = sizeof *six;
  }
  const UniqueFd fd{::socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const int yes = 1;
  // As the server does: connections that have ended a moment ago are no obstacle.
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), length) == 0)
    return true;
  const int code = errno;
  if (code == EADDRNOTAVAIL) {
    problem = fmt::format("--listen {}: no address of this machine: see ip address", address);
  } else if (code == EADDRINUSE) {
    problem = fmt::format("{} {}: in use by another server: end it, or name another port",
                          option, port);
  } else {
    problem = fmt::format("{} {}: {}: name another", option, port, std::strerror(code));
  }
  return false;
}

// The signals that run() takes one at a time.
sigset_t awaited() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) ::sigaddset(&set, signal);
  return set;
}

[[noreturn]] void become_server(const std::string& program, const std::string& config,
                                const std::string& log, const std::string& pid_file,
                                const std::string& output, pid_t parent) {
  const sigset_t set = awaited();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  ::setpgid(0, 0);  // Ctrl-C is ours.
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kExitFailed);
  const int null = ::open("/dev/null", O_RDONLY);
  const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (null < 0 || out < 0 || ::dup2(null, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0)
    ::_exit(kExitFailed);
  const std::array<const char*, 11> words{
      program.c_str(),  "-F", "-f",        config.c_str(), "-L", log.c_str(), "-p",
      pid_file.c_str(), "-N", "NIV_EVENT", nullptr};
  ::execv(program.c_str(), const_cast<char* const*>(words.data()));
  ::_exit(127);
}

}  // namespace

bool ExportServer::prepare() {
  program_ = find_program(kProgram);
  if (program_.empty()) {
    complain(
        "export: ganesha.nfsd is not installed: apt-get install nfs-ganesha nfs-ganesha-vfs");
    return false;
  }
  if (what_.v3 && ::access("/run/rpcbind.sock", F_OK) != 0) {
    complain(
        "export: NFS version 3 needs rpcbind, which does not run here: start it, or --nfs 4");
    return false;
  }
  std::string problem;
  const bool made = ::mkdir(what_.work.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) {
    problem = fmt::format("{}: {}: {}", what_.work, std::strerror(errno),
                          errno == ENOENT ? "make its parent directory first" : kOtherWork);
  } else if (fill_work(problem)) {
    return true;
  }
  complain("export: " + problem);
  std::error_code ignored;
  if (made) std::filesystem::remove_all(what_.work, ignored);
  return false;
}

bool ExportServer::fill_work(std::string& problem) {
  if (!is_usable(what_.work, problem)) return false;
  auto lock = FileLock::acquire(work("lock"));
  if (!lock.ok()) {
    problem = lock.error().code == EBUSY
                  ? fmt::format("{}: another kvcachefs export runs there", what_.work)
                  : fmt::format("{}: {}: {}", what_.work, std::strerror(lock.error().code),
                                kOtherWork);
    return false;
  }
  if (!is_free("--port", what_.address, what_.port, problem)) return false;
  if (what_.v3 && !is_free("--mount-port", what_.address, what_.mount_port, problem))
    return false;
  const auto config = ganesha_config(what_, problem);
  if (!config.ok()) return false;
  if ((::mkdir(work("recovery").c_str(), 0700) != 0 && errno != EEXIST) ||
      !write_all(work("ganesha.conf"), *config)) {
    problem = fmt::format("{}: {}: {}", work("ganesha.conf"), std::strerror(errno), kOtherWork);
    return false;
  }
  lock_ = std::move(*lock);
  return true;
}

std::optional<dev_t> ExportServer::find_served() const {
  std::string problem;
  const auto mount = find_mount(what_.path, FindMount::kExactly, problem);
  if (!mount.ok() || mount->daemon == 0) return std::nullopt;
  return mount->entry.device;
}

int ExportServer::run() {
  const sigset_t set = awaited();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  if (!prepare()) return kExitFailed;
  const auto mount = find_served();
  if (mount && !start(*mount) && !asked_to_end_) return kExitFailed;
  while (!asked_to_end_) {
    const timespec pause{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kLookEvery).count()};
    const int signal = ::sigtimedwait(&set, nullptr, &pause);
    asked_to_end_ = signal == SIGTERM || signal == SIGINT;
    if (!asked_to_end_) look();
  }
  end();
  return kExitOk;
}

void ExportServer::look() {
  if (has_ended()) {
    complain(fmt::format("export: the NFS server has ended: it starts again in {} s: {}",
                         pause_.count(), last_words()));
    try_later();
  }
  const auto mount = find_served();
  if (server_ != 0 && mount != served_) {
    end();
    not_before_ = {};
    pause_ = kFirstPause;
  }
  if (!mount && !waits_)
    complain(fmt::format("export: {}: no kvcachefs answers there: its NFS server waits for it",
                         what_.path));
  waits_ = !mount;
  if (server_ != 0 || !mount || Clock::now() < not_before_) return;
  if (!start(*mount)) try_later();
}

void ExportServer::try_later() {
  not_before_ = Clock::now() + pause_;
  pause_ = std::min(pause_ * 2, kLongestPause);
}

bool ExportServer::start(dev_t mount) {
  served_ = mount;
  ::unlink(work("log").c_str());
  if (!spawn()) return false;
  if (!wait_until_it_serves()) {
    if (!asked_to_end_)
      complain(fmt::format("export: the NFS server did not start: {}", last_words()));
    end();
    return false;
  }
  say(fmt::format(
      "{}: NFS clients mount it by\n  {} DIRECTORY", what_.path,
      linux_mount(what_, what_.address == "0.0.0.0" || what_.address == "::" ? "THIS-SERVER"
                                                                             : what_.address)));
  return true;
}

bool ExportServer::spawn() {
  const pid_t parent = ::getpid();
  const std::string config = work("ganesha.conf");
  const std::string log = work("log");
  const std::string pid_file = work("pid");
  const std::string output = work("out");
  ::unlink(pid_file.c_str());
  const pid_t child = ::fork();
  if (child == 0) become_server(program_, config, log, pid_file, output, parent);
  if (child < 0) {
    complain(fmt::format("export: no process for the NFS server: {}", std::strerror(errno)));
    return false;
  }
  server_ = child;
  return true;
}

bool ExportServer::wait_until_it_serves() {
  const auto deadline = Clock::now() + kStartLimit;
  sigset_t stops;
  ::sigemptyset(&stops);
  ::sigaddset(&stops, SIGTERM);
  ::sigaddset(&stops, SIGINT);
  while (Clock::now() < deadline && !has_ended()) {
    const std::string log = read_all(work("log"));
    if (log.find(kServes) != std::string::npos) return log.find(kNothing) == std::string::npos;
    const timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};
    asked_to_end_ = ::sigtimedwait(&stops, nullptr, &pause) > 0;
    if (asked_to_end_) return false;
  }
  return false;
}

bool ExportServer::has_ended() {
  if (server_ == 0 || ::waitpid(server_, nullptr, WNOHANG) != server_) return false;
  server_ = 0;
  return true;
}

// One that hangs in a mount that is dead ends when it is killed.
void ExportServer::end() {
  if (server_ == 0) return;
  ::kill(server_, SIGTERM);
  const auto deadline = Clock::now() + kEndLimit;
  while (!has_ended()) {
    if (Clock::now() >= deadline) ::kill(server_, SIGKILL);
    ::usleep(20'000);
  }
}

// The last line of its log that says more than that it goes.
std::string ExportServer::last_words() const {
  std::string found = "see " + work("log");
  for (const char* name : {"log", "out"}) {
    std::ifstream file(work(name));
    for (std::string line; std::getline(file, line);) {
      const bool is_grave = line.find(":CRIT :") != std::string::npos ||
                            line.find(":FATAL :") != std::string::npos ||
                            line.find(":MAJ :") != std::string::npos;
      // Neither is wanted here.
      const bool is_noise = line.find("dbus") != std::string::npos ||
                            line.find("DBUS") != std::string::npos ||
                            line.find("krb5") != std::string::npos;
      if (is_grave && !is_noise) found = line;
    }
  }
  return found;
}

}  // namespace kvcachefs
