// Where metrics are served: "9100", "127.0.0.1:9100", "[::1]:9100", "monitoring.example:9100".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvcachefs {

struct MetricsAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
};

// nullopt: no port, or one that is none.
[[nodiscard]] std::optional<MetricsAddress> parse_metrics_address(std::string_view text);

}  // namespace kvcachefs
