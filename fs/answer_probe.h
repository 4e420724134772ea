// Asks whether a mount answers, from a process that can be given up on: a thread of the daemon
// that waited for the daemon's own mount could never be ended.
//
// The process is forked while the caller has one thread still, waits for its question, and
// holds no descriptor but its end of the pipe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

// What does not answer by then is taken to hang.
inline constexpr std::chrono::milliseconds kAnswerPatience = std::chrono::seconds{5};

class AnswerProbe {
 public:
  // Call before the first thread starts. Errors: EAGAIN, ENOMEM, EMFILE.
  static Result<AnswerProbe> prepare();
  AnswerProbe(AnswerProbe&& other) noexcept;
  AnswerProbe& operator=(AnswerProbe&&) = delete;
  ~AnswerProbe();

  // statfs(2), then stat(2) of the path, once per probe; the kernel knows the attributes then.
  // Errors: ETIMEDOUT (no answer), and what these give: ENOTCONN is a dead mount.
  Result<void> ask(const std::string& path, std::chrono::milliseconds patience);

 private:
  AnswerProbe(pid_t pid, UniqueFd pipe) noexcept : pid_(pid), pipe_(std::move(pipe)) {}
  pid_t pid_ = -1;
  UniqueFd pipe_;
};

}  // namespace kvcachefs
