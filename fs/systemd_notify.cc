#include "fs/systemd_notify.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "backend/base/log.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

void systemd_notify(std::string_view message) noexcept {
  const char* name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr || (name[0] != '/' && name[0] != '@')) return;
  sockaddr_un address{};
  const std::size_t length = std::strlen(name);
  if (length >= sizeof address.sun_path) {
    log_warn("systemd event=notify_failed reason=\"NOTIFY_SOCKET is too long\"");
    return;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name, length);
  // An abstract address is written with an @ and begins with a NUL.
  if (name[0] == '@') address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);

  const UniqueFd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!fd || ::sendto(fd.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                      reinterpret_cast<const sockaddr*>(&address), size) < 0) {
    log_warn("systemd event=notify_failed reason=\"{}\"", std::strerror(errno));
  }
}

}  // namespace kvcachefs
