// A status as text for Prometheus (text format 0.0.4). Counters end in _total, sizes are in bytes, times
// in seconds. Pure.
#pragma once

#include <string>
#include <string_view>

#include "fs/status.h"

namespace kvcachefs {

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

[[nodiscard]] std::string metrics_text(const StatusReport& report);

// Between the quotes: what is not printable ASCII as %XX.
[[nodiscard]] std::string label_text(std::string_view value);

}  // namespace kvcachefs
