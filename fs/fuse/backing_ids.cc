#include "fs/fuse/backing_ids.h"

#include <sys/ioctl.h>

#include <cstdint>

#include "backend/base/log.h"

namespace kvcachefs {

namespace {

// libfuse's calls for this need a request at hand, log every failure and hide its errno; and
// the headers of Debian 12 do not have the definitions yet. These are of the kernel's
// include/uapi/linux/fuse.h.
struct BackingMap {
  std::int32_t fd;
  std::uint32_t flags;
  std::uint64_t padding;
};
constexpr unsigned long kBackingOpen = _IOW(229, 1, BackingMap);
constexpr unsigned long kBackingClose = _IOW(229, 2, std::uint32_t);

}  // namespace

Result<int> register_backing_file(int session_fd, int file_fd) noexcept {
  const BackingMap map{.fd = file_fd, .flags = 0, .padding = 0};
  const int id = ::ioctl(session_fd, kBackingOpen, &map);
  if (id < 0) return fail_errno("registering a backing file");
  // 0 means "none" in an answer to OPEN.
  if (id == 0) return fail(EIO, "registering a backing file");
  return id;
}

void unregister_backing_file(int session_fd, int backing_id) noexcept {
  const auto id = static_cast<std::uint32_t>(backing_id);
  // Only a dead connection refuses, and that has dropped its ids already.
  if (::ioctl(session_fd, kBackingClose, &id) < 0) {
    log_debug("backing_close id={} errno={}", backing_id, errno);
  }
}

}  // namespace kvcachefs
