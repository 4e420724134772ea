#include "metadata/free_space.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "backend/base/clock.h"
#include "backend/base/log.h"

namespace kvcachefs {
namespace {

constexpr const char* kReserveName = "reserve";

}  // namespace

Result<void> FreeSpace::open(const std::string& dir) {
  dir_ = UniqueFd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir_) return fail_errno("database directory");
  const std::lock_guard lock(mutex_);
  has_reserve_ = ::faccessat(dir_.get(), kReserveName, F_OK, 0) == 0;
  return {};
}

bool FreeSpace::give_up_reserve(const std::string& dir) noexcept {
  return ::unlink((dir + "/" + kReserveName).c_str()) == 0;
}

void FreeSpace::make_reserve() {
  const UniqueFd file(
      ::openat(dir_.get(), kReserveName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return;
  has_reserve_ = ::fallocate(file.get(), 0, 0, static_cast<off_t>(kReserve)) == 0;
  if (!has_reserve_) ::unlinkat(dir_.get(), kReserveName, 0);
}

std::uint64_t FreeSpace::used() const {
  // A descriptor of its own: a listing moves its offset.
  UniqueFd fd(::openat(dir_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fd ? ::fdopendir(fd.get()) : nullptr,
                                                    ::closedir);
  if (!listing) return 0;
  static_cast<void>(fd.release());  // the listing's now
  std::uint64_t bytes = 0;
  while (const dirent* entry = ::readdir(listing.get())) {
    struct stat status {};
    if (std::string_view(entry->d_name) == kReserveName ||
        ::fstatat(dir_.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode))
      continue;
    bytes += static_cast<std::uint64_t>(std::min(status.st_size, status.st_blocks * 512));
  }
  return bytes;
}

Result<void> FreeSpace::admit(bool frees) {
  const std::int64_t now = monotonic_now();
  if (now < next_look_.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(mutex_);
  struct statvfs space {};
  if (::fstatvfs(dir_.get(), &space) != 0)
    return {};  // the write itself will say what is wrong
  const std::uint64_t free = static_cast<std::uint64_t>(space.f_bfree) * space.f_frsize;
  if (free >= kFloor) {
    if (!has_reserve_ && free >= kFloor + 2 * kReserve) make_reserve();
    if (short_) log_info("state directory has room again free={}", free);
    short_ = false;
    next_look_.store(now + kInterval, std::memory_order_relaxed);
    return {};
  }
  if (!short_)
    log_error(
        "the disk of the state directory is full free={}: only removals work until there is "
        "room",
        free);
  short_ = true;
  if (!frees) return fail(ENOSPC, "the disk of the state directory is full");
  if (has_reserve_) {
    ::unlinkat(dir_.get(), kReserveName, 0);
    has_reserve_ = false;
  }
  return {};
}

}  // namespace kvcachefs
