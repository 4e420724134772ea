// Writes lines to where a log goes, on a thread of its own: a disk that takes no writes, or a
// reader that reads none, holds up nobody who logs.
//
// A line is written when put() returns, as long as that takes kPatience at most. While one line
// takes longer the others are queued, and put() returns at once; of those that are too many it
// is said how many were lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace kvcachefs {

class LogWriter {
 public:
  static constexpr std::chrono::milliseconds kPatience{50};
  // Of flush(), and of the end.
  static constexpr std::chrono::seconds kLongestFlush{1};
  // Queued: some hundred kilobytes.
  static constexpr std::size_t kMost = 4096;

  using Write = std::function<void(std::string_view line)>;
  using Lost = std::function<std::string(std::uint64_t lines)>;
  // Both are called on the thread, one at a time, and perhaps once more after the end of this
  // object, where it has given up waiting. `lost`: the line that says so. Throws
  // std::system_error where no thread is to be had.
  LogWriter(Write write, Lost lost);
  // Writes what is queued, if that takes kLongestFlush at most.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // Any thread.
  void put(std::string line);
  // Returns when the lines that were put before are written, or kLongestFlush is over.
  void flush();

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace kvcachefs
