// The log: one line an event, `event key=value …`. Needs only fmt, so that including it is
// cheap; spdlog lives in log.cc.
//
// Levels: error = a person must act, warn = degraded, info = lifecycle, debug = per operation.
// Any thread may log. Never log payloads.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "backend/base/result.h"

namespace kvcachefs {

enum class LogLevel { kDebug, kInfo, kWarn, kError, kOff };

struct LogTarget {
  // Empty: standard error (the journal under systemd). May be renamed or removed while it is in use.
  std::string file;
  LogLevel level = LogLevel::kInfo;
};

// Chooses where lines go; before the first call they go to standard error at level info.
// Errors: what opening the file gives (ENOENT, EACCES, …).
Result<void> log_open(const LogTarget& target);
void log_flush() noexcept;

[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
void log_line(LogLevel level, std::string_view line) noexcept;

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kDebug)) {
    log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace kvcachefs
