#include "backend/base/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "backend/base/clock.h"
#include "backend/base/trusted_path.h"

namespace kvcachefs {
namespace {

// Lines of a second may still go to the old file: who rotates does not compress the last one at
// once.
constexpr std::int64_t kLookEveryNanos = kNanosPerSecond;

// It names files and models, which are not everybody's business.
constexpr mode_t kMode = 0640;

const char* name_of(const std::string& path) noexcept {
  const std::size_t slash = path.rfind('/');
  return path.c_str() + (slash == std::string::npos ? 0 : slash + 1);
}

}  // namespace

Result<void> LogFile::find_directory() {
  if (directory_ && !replaceable_at(path_).empty()) return {};
  const std::size_t slash = path_.rfind('/');
  const std::string above = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  UniqueFd found{::open(above.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (found) directory_ = std::move(found);
  return directory_ ? Result<void>{} : fail_errno("log: open its directory");
}

Result<void> LogFile::open() {
  TRY(find_directory());
  UniqueFd fd{::openat(directory_.get(), name_of(path_),
                       O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                       kMode)};
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return fail_errno("log: open the file");
  if (!S_ISREG(status.st_mode)) return fail(EINVAL, "log: not a file");
  if (status.st_nlink > 1) return fail(EMLINK, "log: it has further names");
  struct stat before {};
  const bool is_first = !fd_ || ::fstat(fd_.get(), &before) != 0;
  if (!is_first && status.st_uid != before.st_uid && status.st_uid != ::geteuid())
    return fail(EPERM, "log: it is another user's");
  fd_ = std::move(fd);
  looked_ns_ = monotonic_now();
  return {};
}

bool LogFile::has_moved() const noexcept {
  struct stat mine {};
  struct stat named {};
  if (::fstat(fd_.get(), &mine) != 0) return false;
  if (::fstatat(directory_.get(), name_of(path_), &named, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT;
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
