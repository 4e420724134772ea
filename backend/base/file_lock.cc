#include "backend/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>
#include <thread>

namespace kvcachefs {
namespace {

// How often a lock that another process has is asked for again.
constexpr std::chrono::milliseconds kRetryInterval{10};
constexpr std::string_view kEnding = " ending";

// The content of a lock file: the pid of its holder, and whether that is ending.
struct Note {
  pid_t pid = 0;
  bool is_ending = false;
};

Note read_note(int fd) noexcept {
  std::array<char, 64> text;
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  if (got <= 0) return {};
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + got, pid);
  if (error != std::errc{} || pid <= 0) return {};
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + got - end));
  return {.pid = pid, .is_ending = rest.starts_with(kEnding)};
}

Note read_note(const std::string& path) noexcept {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return fd ? read_note(fd.get()) : Note{};
}

}  // namespace

Result<void> lock_with_patience(int fd, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return fail_errno("lock file: flock");
    if (std::chrono::steady_clock::now() >= until) return fail(EBUSY, "lock file: in use");
    std::this_thread::sleep_for(kRetryInterval);
  }
  return {};
}

pid_t lock_holder(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return 0;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> locks(std::fopen("/proc/locks", "re"),
                                                              &std::fclose);
  if (!locks) return 0;
  std::array<char, 256> line;
  while (std::fgets(line.data(), line.size(), locks.get()) != nullptr) {
    int pid = 0;
    unsigned major = 0;
    unsigned minor = 0;
    unsigned long inode = 0;
    // 12: FLOCK  ADVISORY  WRITE 4711 fe:01:131089 0 EOF
    if (std::sscanf(line.data(), "%*d: FLOCK %*s %*s %d %x:%x:%lu", &pid, &major, &minor,
                    &inode) == 4 &&
        inode == status.st_ino && makedev(major, minor) == status.st_dev) {
      return pid > 0 ? pid : 0;
    }
  }
  return 0;
}

Result<FileLock> FileLock::acquire(const std::string& path, pid_t* holder,
                                   std::chrono::milliseconds patience) {
  if (holder != nullptr) *holder = 0;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return fail_errno("lock file: open");
  if (const Result<void> locked = lock_with_patience(fd.get(), patience); !locked) {
    if (holder != nullptr && locked.error().code == EBUSY) *holder = read_note(fd.get()).pid;
    return locked.error();
  }
  FileLock lock(std::move(fd));
  TRY(lock.write_pid());
  return lock;
}

Result<void> FileLock::write_pid() { return write_text(std::to_string(::getpid()) + "\n"); }

Result<void> FileLock::mark_ending() {
  return write_text(std::to_string(::getpid()) + std::string(kEnding) + "\n");
}

bool FileLock::is_ending(const std::string& path) { return read_note(path).is_ending; }

Result<void> FileLock::write_text(const std::string& text) {
  if (::ftruncate(fd_.get(), 0) != 0) return fail_errno("lock file: truncate");
  const ssize_t put = ::pwrite(fd_.get(), text.data(), text.size(), 0);
  if (put < 0) return fail_errno("lock file: write the pid");
  if (static_cast<std::size_t>(put) != text.size()) {
    return fail(ENOSPC, "lock file: write the pid");
  }
  return {};
}

pid_t FileLock::read_pid(const std::string& path) { return read_note(path).pid; }

pid_t FileLock::holder(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return 0;
  // A shared lock does not keep a process that starts now from seeing the file free for longer
  // than this call.
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return 0;
  return read_note(fd.get()).pid;
}

}  // namespace kvcachefs
