#include "backend/base/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

// Lines of a second may still go to the old file: who rotates does not compress the last one at
// once.
constexpr std::int64_t kLookEveryNanos = kNanosPerSecond;

// It names files and models, which are not everybody's business.
constexpr mode_t kMode = 0640;

}  // namespace

Result<void> LogFile::open() {
  UniqueFd fd{::open(path_.c_str(),
                     O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                     kMode)};
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return fail_errno("log: open the file");
  if (!S_ISREG(status.st_mode)) return fail(EINVAL, "log: not a file");
  fd_ = std::move(fd);
  looked_ns_ = monotonic_now();
  return {};
}

bool LogFile::has_moved() const noexcept {
  struct stat mine {};
  struct stat named {};
  if (::fstat(fd_.get(), &mine) != 0) return false;
  if (::stat(path_.c_str(), &named) != 0) return errno == ENOENT;
  return mine.st_dev != named.st_dev || mine.st_ino != named.st_ino;
}

void LogFile::append(std::string_view line) noexcept {
  const std::int64_t now = monotonic_now();
  if (now - looked_ns_ >= kLookEveryNanos) {
    looked_ns_ = now;
    // Where a new one cannot be opened, the old one is better than none.
    if (has_moved()) (void)open();
  }
  while (!line.empty()) {
    const ssize_t written = ::write(fd_.get(), line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace kvcachefs
