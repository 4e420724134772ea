#include "fs/config_paths.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/trusted_path.h"
#include "backend/base/unique_fd.h"
#include "backend/superblock.h"
#include "fs/mount_table.h"
#include "fs/refuse.h"

namespace kvcachefs {
namespace {

// A pool's directory that does not resolve in this time is taken as it is written: mounts start without their pool.
constexpr std::int64_t kResolvePatience = 2 * kNanosPerSecond;
constexpr const char* kMakeFirst = "make the directory first: mkdir -p";

bool is_inside(const std::string& path, const std::string& directory) {
  return path == directory || directory == "/" ||
         (path.size() > directory.size() && path.starts_with(directory) &&
          path[directory.size()] == '/');
}

// As the path is written: a mount that hangs is not asked.
std::string written(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

// As realpath(3), of the longest part that is there; a symlink to what is not there yet leads where it says. Empty: it
// cannot be told.
std::string resolve(std::string path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::string rest;
  std::array<char, PATH_MAX> buffer;
  int links = 0;
  while (::realpath(path.c_str(), buffer.data()) == nullptr) {
    const std::size_t slash = path.rfind('/');
    if (errno != ENOENT || slash == std::string::npos || path == "/") return {};
    const ssize_t length = ::readlink(path.c_str(), buffer.data(), buffer.size());
    if (length > 0) {
      const std::string target(buffer.data(), static_cast<std::size_t>(length));
      if (++links > kMostLinks) return {};
      path = target.front() == '/' ? target : path.substr(0, slash + 1) + target;
    } else {
      rest.insert(0, path.substr(slash));
      path.resize(std::max<std::size_t>(slash, 1));
    }
  }
  std::string out = buffer.data();
  if (!rest.empty() && out == "/") out.clear();
  // What is not there yet may be written with dots.
  return std::filesystem::path(out + rest).lexically_normal().string();
}

// Names the others who could change what is in a directory, or put another in its place. Empty:
// nobody could, or it is not there.
std::string other_writers(const std::string& directory) {
  struct stat status {};
  if (directory.empty() || ::stat(directory.c_str(), &status) != 0) return {};
  std::string writer = writable_by_others(directory);
  return writer.empty() ? replaceable_at(directory) : writer;
}

// Runs in a process that may hang, and keeps nobody's descriptors: a reader of standard output would wait for it. What the
// parent has yet to print must not come out of the pipe (ThreadSanitizer's _exit() flushes).
[[noreturn]] void resolve_into(int pipe, const std::string& path) {
  constexpr int kPipe = STDIN_FILENO;
  if (pipe != kPipe) ::dup2(pipe, kPipe);
  ::close_range(kPipe + 1, ~0u, 0);
  const std::string resolved = resolve(path);
  const std::string out = resolved + '\0' + other_writers(resolved);
  const bool written =
      ::write(kPipe, out.data(), out.size()) == static_cast<ssize_t>(out.size());
  ::_exit(written ? 0 : 1);
}

// The end of a process that was asked to; one that hangs in the kernel is left to init.
void reap(pid_t child) {
  ::kill(child, SIGKILL);
  constexpr int kTries = 100;
  constexpr useconds_t kPauseUs = 1000;
  for (int i = 0; i < kTries && ::waitpid(child, nullptr, WNOHANG) == 0; ++i)
    ::usleep(kPauseUs);
}

struct Resolved {
  std::string path;  // as far as it is there; as it is written when it cannot be told in time
  std::string writers;  // as other_writers(), where it could be told
};
Resolved resolve_in_time(const std::string& path) {
  const Resolved unresolved{.path = path, .writers = {}};
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return unresolved;
  const UniqueFd from_child{ends[0]};
  UniqueFd to_us{ends[1]};
  const pid_t child = ::fork();
  if (child < 0) return unresolved;
  if (child == 0) resolve_into(to_us.get(), path);
  to_us.reset();
  std::string out;
  const std::int64_t deadline = monotonic_now() + kResolvePatience;
  bool ended = false;
  while (!ended && monotonic_now() < deadline) {
    constexpr int kPollMs = 100;
    pollfd readable{from_child.get(), POLLIN, 0};
    if (::poll(&readable, 1, kPollMs) <= 0) continue;
    std::array<char, PATH_MAX> part;
    const ssize_t got = ::read(from_child.get(), part.data(), part.size());
    ended = got == 0;
    if (got > 0) out.append(part.data(), static_cast<std::size_t>(got));
  }
  reap(child);
  const std::size_t end = out.find('\0');
  if (!ended || end == 0 || end == std::string::npos) return unresolved;
  return {.path = out.substr(0, end), .writers = out.substr(end + 1)};
}

// Whether one path lies in the other, by whatever way.
class Nesting {
 public:
  explicit Nesting(const std::string& mountpoint) {
    auto table = read_mount_table();
    if (!table) return;
    table_ = std::move(*table);
    // What is mounted there now will be below the new mount.
    std::erase_if(table_, [&](const MountEntry& entry) {
      return entry.point != "/" && is_inside(entry.point, mountpoint);
    });
  }

  [[nodiscard]] bool is_in(const std::string& path, const std::string& directory) const {
    if (is_inside(path, directory)) return true;
    const auto inner = path_on_filesystem(table_, path);
    const auto outer = path_on_filesystem(table_, directory);
    return inner && outer && inner->device == outer->device &&
           is_inside(inner->path, outer->path);
  }
  [[nodiscard]] bool overlap(const std::string& one, const std::string& other) const {
    return is_in(one, other) || is_in(other, one);
  }

 private:
  std::vector<MountEntry> table_;
};

Result<std::string> absolute(const std::string& path, std::string_view option,
                             std::string_view fix, std::string& problem) {
  auto canonical = canonical_path(path);
  if (!canonical) {
    return refuse(
        problem,
        fmt::format("{}: {}: {}: {}", option, path, std::strerror(canonical.error().code), fix),
        canonical.error().code);
  }
  return canonical;
}

class Finisher {
 public:
  Finisher(Config& config, std::string& problem)
      : config_(config), problem_(problem), nesting_(config.mountpoint) {}

  Result<void> run() {
    for (DeviceSetting& device : config_.nvme) TRY(finish_device(device));
    TRY(check_devices());
    TRY(finish_state());
    TRY(refuse_own(config_.mountpoint, "MOUNTPOINT"));
    if (!config_.log_file.empty()) TRY(finish_log());
    if (config_.pool && config_.pool->kind == PoolUri::Kind::kDirectory) TRY(finish_pool());
    return {};
  }

 private:
  // Before the path is resolved: that must not wait for what is mounted there now.
  Result<void> refuse_written_inside(const std::string& path, std::string_view option) {
    return refuse_inside(written(path), option);
  }

  Result<void> refuse_inside(const std::string& path, std::string_view option) {
    if (!nesting_.is_in(path, config_.mountpoint)) return {};
    return refuse(problem_, fmt::format("{}: {}: is inside the mount point {}, which would "
                                        "hide it: choose another mount point",
                                        option, path, config_.mountpoint));
  }

  Result<void> finish_device(DeviceSetting& device) {
    TRY(refuse_written_inside(device.path, "--nvme"));
    // Devices are resolved in full: what counts is the directory, not a link to it.
    auto path = canonical_path(device.path + "/.");
    if (!path) {
      const bool may_be_size = !device.size && device.path.find(':') != std::string::npos;
      return refuse(
          problem_,
          fmt::format("--nvme: {}: {}: {}{}", device.path, std::strerror(path.error().code),
                      path.error().code == ENOTDIR ? "name a directory" : kMakeFirst,
                      may_be_size ? ", or give it a size like DIR:200GiB" : ""),
          path.error().code);
    }
    device.path = std::move(*path);
    TRY(refuse_inside(device.path, "--nvme"));
    return refuse_replaceable(device.path, "--nvme");
  }

  Result<void> refuse_replaceable(const std::string& path, std::string_view option) {
    const std::string problem = replaceable_at(path);
    if (problem.empty()) return {};
    return refuse_insecure(
        fmt::format("{}: {}: others could put another in its place: {}", option, path, problem),
        "take that from them (chmod go-w), name another directory");
  }

  // Where the settings take such a path it is a warning at the start.
  Result<void> refuse_insecure(std::string found, std::string_view fix) {
    if (!config_.insecure_paths)
      return refuse(problem_, fmt::format("{}: {}, or give --insecure-paths", found, fix),
                    EPERM);
    config_.warnings.push_back(std::move(found));
    return {};
  }

  Result<void> check_devices() {
    for (std::size_t i = 0; i < config_.nvme.size(); ++i) {
      for (std::size_t j = 0; j < config_.nvme.size(); ++j) {
        const std::string& path = config_.nvme[i].path;
        if (i == j || !nesting_.is_in(path, config_.nvme[j].path)) continue;
        if (nesting_.is_in(config_.nvme[j].path, path))
          return refuse(
              problem_,
              fmt::format("--nvme: {}: is given twice: name each directory once", path));
        return refuse(problem_, fmt::format("--nvme: {}: is inside {}: name directories beside "
                                            "each other",
                                            path, config_.nvme[j].path));
      }
    }
    return {};
  }

  // The default goes by the order of the devices: in another one it would begin an empty state directory.
  Result<void> refuse_state_elsewhere(const std::string& default_state) {
    struct stat found {};
    if (::lstat(default_state.c_str(), &found) == 0) return {};
    for (const DeviceSetting& device : config_.nvme) {
      const std::string state = device.path + "/state";
      if (::lstat(state.c_str(), &found) != 0) continue;
      return refuse(problem_,
                    fmt::format("--nvme: {}: holds the state directory, and is not the "
                                "first: name it first, or give --state {}",
                                device.path, state));
    }
    return {};
  }

  Result<void> finish_state() {
    const std::string default_state = config_.nvme.front().path + "/state";
    if (config_.state.empty()) {
      TRY(refuse_state_elsewhere(default_state));
      config_.state = default_state;
    }
    TRY(refuse_written_inside(config_.state, "--state"));
    config_.state =
        TRY(absolute(config_.state, "--state", "make its parent directory first", problem_));
    config_.state_is_default = config_.state == default_state;
    TRY(refuse_inside(config_.state, "--state"));
    TRY(refuse_replaceable(config_.state, "--state"));
    return refuse_on_device(config_.state, "--state");
  }

  // What the daemon keeps to itself on the devices.
  Result<void> refuse_on_device(const std::string& path, std::string_view option) {
    for (const DeviceSetting& device : config_.nvme) {
      for (const char* own : {"objects", "quarantine", kSuperblockName}) {
        const std::string kept = device.path + "/" + own;
        if (nesting_.is_in(path, kept))
          return refuse(problem_, fmt::format("{}: {}: is inside {}, which kvcachefs keeps to "
                                              "itself: name another place",
                                              option, path, kept));
      }
    }
    return {};
  }

  Result<void> refuse_own(const std::string& path, std::string_view option) {
    if (nesting_.is_in(path, config_.state))
      return refuse(problem_, fmt::format("{}: {}: is inside the state directory {}: name "
                                          "another place",
                                          option, path, config_.state));
    return refuse_on_device(path, option);
  }

  Result<void> finish_log() {
    TRY(refuse_log_inside(written(config_.log_file)));
    TRY(refuse_odd_log());
    config_.log_file =
        TRY(absolute(config_.log_file, "--log", "make its directory first", problem_));
    TRY(refuse_log_inside(config_.log_file));
    return refuse_own(config_.log_file, "--log");
  }

  // Before it is resolved: a link may be led elsewhere by who owns it, what is no file may do
  // anything with what is written, and who owns a file reads in it what others call theirs.
  Result<void> refuse_odd_log() {
    const std::string& path = config_.log_file;
    struct stat found {};
    if (::lstat(path.c_str(), &found) != 0) return {};
    if (S_ISREG(found.st_mode)) {
      if (is_trusted(found.st_uid)) return {};
      return refuse_insecure(
          fmt::format("--log: {}: belongs to uid {}, who reads what is written to it", path,
                      found.st_uid),
          "chown it to root, name another file");
    }
    if (S_ISLNK(found.st_mode))
      return refuse(problem_,
                    fmt::format("--log: {}: a symlink: name the file that it leads to", path));
    return refuse(problem_, fmt::format("--log: {}: not a file: name a file", path), ENXIO);
  }

  // Who writes his log into his own mount waits for himself, for ever.
  Result<void> refuse_log_inside(const std::string& path) {
    if (!nesting_.is_in(path, config_.mountpoint)) return {};
    return refuse(problem_,
                  fmt::format("--log: {}: is inside the mount point {}: name a file elsewhere",
                              path, config_.mountpoint));
  }

  Result<void> finish_pool() {
    std::string& path = config_.pool->path;
    TRY(refuse_pool_in_mount(path));
    Resolved resolved = resolve_in_time(path);
    path = std::move(resolved.path);
    TRY(refuse_pool_in_mount(path));
    TRY(refuse_writers(path, resolved.writers));
    for (const DeviceSetting& device : config_.nvme)
      TRY(refuse_overlap(path, "--nvme", device.path));
    return refuse_overlap(path, "--state", config_.state);
  }

  Result<void> refuse_writers(const std::string& path, const std::string& writers) {
    if (writers.empty()) return {};
    return refuse_insecure(
        fmt::format("--pool: {}: others could read and change everybody's files: {}", path,
                    writers),
        "take that from them (chmod go-w)");
  }

  // Who asks his own mount for an answer waits for himself.
  Result<void> refuse_pool_in_mount(const std::string& path) {
    if (nesting_.is_in(path, config_.mountpoint))
      return refuse(problem_, fmt::format("--pool: {}: is inside the mount point {}: name a "
                                          "directory elsewhere",
                                          path, config_.mountpoint));
    if (nesting_.is_in(config_.mountpoint, path))
      return refuse(problem_,
                    fmt::format("--pool: {}: has the mount point {} inside: mount elsewhere",
                                path, config_.mountpoint));
    return {};
  }

  Result<void> refuse_overlap(const std::string& pool, std::string_view option,
                              const std::string& other) {
    if (!nesting_.overlap(pool, other)) return {};
    return refuse(problem_, fmt::format("--pool: {}: and {} {}: one is inside the other: name "
                                        "directories beside each other",
                                        pool, option, other));
  }

  Config& config_;
  std::string& problem_;
  const Nesting nesting_;
};

}  // namespace

Result<void> finish_paths(Config& config, std::string& problem) {
  config.mountpoint = TRY(absolute(config.mountpoint, "MOUNTPOINT", kMakeFirst, problem));
  return Finisher(config, problem).run();
}

}  // namespace kvcachefs
