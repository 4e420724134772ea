#include "backend/base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/base/log_file.h"
#include "backend/base/visible.h"

namespace kvcachefs {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

// The journal stamps every line itself.
bool stderr_is_journal() noexcept { return std::getenv("JOURNAL_STREAM") != nullptr; }

class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(LogFile file) : file_(std::move(file)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    file_.append({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  LogFile file_;
};

// No file: standard error.
std::shared_ptr<spdlog::logger> make_logger(std::optional<LogFile> file, LogLevel level) {
  std::shared_ptr<spdlog::logger> logger;
  if (!file) {
    logger = std::make_shared<spdlog::logger>(
        "kvcachefs", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern(stderr_is_journal() ? "%l %v" : "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  } else {
    logger = std::make_shared<spdlog::logger>("kvcachefs",
                                              std::make_shared<FileSink>(*std::move(file)));
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %P %l %v");
  }
  logger->set_level(to_spdlog(level));
  logger->flush_on(spdlog::level::info);
  // A log that cannot be written must not take the mount with it.
  logger->set_error_handler([](const std::string&) {});
  return logger;
}

// The logger in force. Never destroyed: threads may log while the process ends.
struct State {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger;
  std::atomic<LogLevel> level{LogLevel::kInfo};
};
State& state() {
  static State& state = *new State;
  return state;
}

std::shared_ptr<spdlog::logger> current_logger() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.logger) s.logger = make_logger(std::nullopt, s.level.load(std::memory_order_relaxed));
  return s.logger;
}

}  // namespace

Result<void> log_open(const LogTarget& target) {
  std::optional<LogFile> file;
  if (!target.file.empty()) {
    file.emplace(target.file);
    TRY(file->open());
  }
  try {
    std::shared_ptr<spdlog::logger> logger = make_logger(std::move(file), target.level);
    State& s = state();
    const std::lock_guard lock(s.mutex);
    s.logger = std::move(logger);
    s.level.store(target.level, std::memory_order_relaxed);
  } catch (const std::exception&) {
    return fail(EIO, "log: open the file");
  }
  return {};
}

void log_flush() noexcept {
  try {
    current_logger()->flush();
  } catch (const std::exception&) {
  }
}

bool log_enabled(LogLevel level) noexcept {
  return level >= state().level.load(std::memory_order_relaxed) && level != LogLevel::kOff;
}

std::string log_text(std::string_view text) {
  std::string out = visible(text);
  for (std::size_t at = out.find('"'); at != std::string::npos; at = out.find('"', at))
    out.replace(at, 1, "\\x22");
  return out;
}

void log_line(LogLevel level, std::string_view line) noexcept {
  if (!log_enabled(level)) return;
  try {
    current_logger()->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
  } catch (const std::exception&) {
  }
}

}  // namespace kvcachefs
