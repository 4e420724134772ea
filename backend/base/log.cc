#include "backend/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "backend/base/log_file.h"
#include "backend/base/log_writer.h"
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

std::string text_of(spdlog::pattern_formatter& formatter,
                    const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter.format(message, line);
  return {line.data(), line.size()};
}

// Of the writer's thread, perhaps after the end of its sink.
LogWriter::Lost make_lost(const std::string& pattern) {
  return
      [formatter = std::make_shared<spdlog::pattern_formatter>(pattern)](std::uint64_t lines) {
        const std::string text = fmt::format("log event=lines_lost count={}", lines);
        return text_of(*formatter, {"kvcachefs", spdlog::level::warn, text});
      };
}

// Formats a line, and hands it to a thread.
class WriterSink : public spdlog::sinks::sink {
 public:
  WriterSink(LogWriter::Write write, const std::string& pattern)
      : formatter_(pattern), writer_(std::move(write), make_lost(pattern)) {}

  void log(const spdlog::details::log_msg& message) override {
    std::string line;
    {
      const std::lock_guard lock(mutex_);
      line = text_of(formatter_, message);
    }
    writer_.put(std::move(line));
  }
  void flush() override { writer_.flush(); }
  // The pattern is that of the making.
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  std::mutex mutex_;
  spdlog::pattern_formatter formatter_;  // under mutex_
  LogWriter writer_;
};

constexpr const char* kFilePattern = "%Y-%m-%dT%H:%M:%S.%e%z %P %l %v";

const char* stderr_pattern() {
  return stderr_is_journal() ? "%l %v" : "%Y-%m-%dT%H:%M:%S.%e%z %l %v";
}

void write_to_stderr(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::shared_ptr<spdlog::logger> make_logger(const spdlog::sink_ptr& sink, LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>("kvcachefs", sink);
  logger->set_level(to_spdlog(level));
  // A log that cannot be written must not take the mount with it.
  logger->set_error_handler([](const std::string&) {});
  return logger;
}

// Before somebody has said where lines go.
std::shared_ptr<spdlog::logger> make_first_logger(LogLevel level) {
  const auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_pattern(stderr_pattern());
  return make_logger(sink, level);
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
  if (!s.logger) s.logger = make_first_logger(s.level.load(std::memory_order_relaxed));
  return s.logger;
}

}  // namespace

Result<void> log_open(const LogTarget& target) {
  LogWriter::Write write = write_to_stderr;
  if (!target.file.empty()) {
    const auto file = std::make_shared<LogFile>(target.file);
    TRY(file->open());
    write = [file](std::string_view line) { file->append(line); };
  }
  try {
    const auto sink = std::make_shared<WriterSink>(
        std::move(write), target.file.empty() ? stderr_pattern() : kFilePattern);
    // Later the one before: its end waits, without the lock.
    std::shared_ptr<spdlog::logger> logger = make_logger(sink, target.level);
    State& s = state();
    const std::lock_guard lock(s.mutex);
    s.logger.swap(logger);
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
