// Tells systemd what state we are in (Type=notify): a datagram to the socket named by
// NOTIFY_SOCKET. Without that variable nothing is done.
#pragma once

#include <string_view>

namespace kvcachefs {

// `message` as in sd_notify(3): `READY=1\nSTATUS=…`. A failure is logged, nothing more: the
// mount works without its supervisor.
void systemd_notify(std::string_view message) noexcept;

}  // namespace kvcachefs
