// The log: one line an event, `event key=value …`. Needs only fmt, so that including it is
// cheap; spdlog lives in log.cc.
//
// Levels: error = a person must act, warn = degraded, info = lifecycle, debug = per operation.
// Any thread may log. Never log payloads. Names, paths and what others have sent are arguments,
// never part of the format: as such they are escaped.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

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

// Text as a value of a line: as visible() shows it (visible.h), and a quotation mark as \x22.
// No name can begin a line or a key of its own.
[[nodiscard]] std::string log_text(std::string_view text);

// Escapes an argument of a line where it is text; all else is taken as it is.
template <class Value>
decltype(auto) log_value(const Value& value) {
  if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return log_text(value);
  } else {
    return (value);
  }
}
template <class... Args>
void log_values(LogLevel level, fmt::string_view format, const Args&... values) {
  log_line(level, fmt::vformat(format, fmt::make_format_args(values...)));
}

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kDebug)) log_values(LogLevel::kDebug, format, log_value(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_values(LogLevel::kInfo, format, log_value(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_values(LogLevel::kWarn, format, log_value(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_values(LogLevel::kError, format, log_value(args)...);
}

}  // namespace kvcachefs
