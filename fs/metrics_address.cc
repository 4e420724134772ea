#include "fs/metrics_address.h"

#include <charconv>

namespace kvcachefs {

std::optional<MetricsAddress> parse_metrics_address(std::string_view text) {
  MetricsAddress out;
  const std::size_t colon = text.rfind(':');
  std::string_view port = text;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    port = text.substr(colon + 1);
    const bool in_brackets = host.starts_with('[') && host.ends_with(']');
    if (in_brackets) host = host.substr(1, host.size() - 2);
    // Without brackets it is not clear where an IPv6 address ends.
    if (host.empty() || (!in_brackets && host.find(':') != std::string_view::npos))
      return std::nullopt;
    out.host = host;
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc{} || end != port.data() + port.size() || out.port == 0)
    return std::nullopt;
  return out;
}

}  // namespace kvcachefs
