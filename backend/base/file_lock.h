// One process at a time: a locked file that holds the pid of the process that has it.
//
// The lock is flock(2)'s: it ends with the last descriptor, however the process ends, and a
// child of fork() shares it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

class FileLock {
 public:
  // Makes the file (mode 0600) when it is not there, locks it and writes our pid. Tries for
  // `patience`, because the locks of a process that was killed can outlive it by a moment.
  // Errors: EBUSY (another process has it: `holder`, when given, becomes its pid, or 0 when it
  // is not known), EISDIR, EACCES, ENOENT, ELOOP (a symlink), ENOSPC, EROFS.
  static Result<FileLock> acquire(const std::string& path, pid_t* holder = nullptr,
                                  std::chrono::milliseconds patience = std::chrono::seconds{1});
  // Writes the caller's pid: for a child that goes on with the lock after fork().
  Result<void> write_pid();
  // Writes beside the pid that its process is ending: who wants the lock may wait for it.
  Result<void> mark_ending();
  // Whether who has, or had, the lock has said so.
  [[nodiscard]] static bool is_ending(const std::string& path);
  // The pid that a lock file names, whoever has it; 0: no such file, or none in it.
  [[nodiscard]] static pid_t read_pid(const std::string& path);
  // The pid of the process that holds the file locked now; 0: nobody does.
  [[nodiscard]] static pid_t holder(const std::string& path);

 private:
  explicit FileLock(UniqueFd fd) noexcept : fd_(std::move(fd)) {}
  Result<void> write_text(const std::string& text);
  UniqueFd fd_;
};

// flock(LOCK_EX) on an open file, tried for `patience`. Errors: EBUSY, and what flock(2) gives.
Result<void> lock_with_patience(int fd, std::chrono::milliseconds patience);
// The pid that took the lock on an open file, from /proc/locks; 0: not known.
[[nodiscard]] pid_t lock_holder(int fd);

}  // namespace kvcachefs
