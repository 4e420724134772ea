// The state directory of a mount: who may use it, and who uses it now.
//
//   <path>/lock           flock'ed by the daemon, holds its pid
//   <path>/control.sock   the control socket (control.h)
//   <path>/devices        the device directories of the last mount (device_list.h)
//   <path>/db/            the database
//
// The directory is ours alone (mode 0700). What lies in it says which bytes are whose, so one
// that another user could write to is refused rather than repaired. So is one with other things in it
// and no database: closing somebody's directory to all others breaks what uses it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "backend/base/file_lock.h"
#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

class StateDir {
 public:
  enum class IfMissing { kCreate, kFail };

  // Checks and locks the directory. `problem` says what is wrong, with what, and what to do. A
  // process that has it and is ending is waited for, kLongestEnd at most, and `say` is told so.
  // Errors: ENOENT, ENOTDIR, EPERM (another user's, or others may write to it), EBUSY (in use;
  // the pid is in the problem), ELOOP (a symlink), ENOTEMPTY (not ours), EROFS, EACCES, ENOSPC,
  // EIO.
  using Say = std::function<void(const std::string& text)>;
  static Result<StateDir> open(const std::string& path, IfMissing if_missing,
                               std::string& problem, const Say& say = {});
  // The stop of a daemon takes less, on disks that work.
  static constexpr std::chrono::seconds kLongestEnd{60};

  StateDir(StateDir&& other) noexcept;
  StateDir& operator=(StateDir&&) = delete;
  // Unless keep() was called: removes the directory with all that is in it when this object
  // made it, or the database when there was none. A start that failed leaves nothing behind.
  ~StateDir();
  void keep() noexcept { created_ = fresh_ = false; }

  // As it was given: for messages.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // The directory that was checked, whatever has its path by now (proc(5), /proc/PID/fd). While
  // this object lives.
  [[nodiscard]] std::string held() const {
    return "/proc/self/fd/" + std::to_string(fd_.get());
  }
  // Below held(), and as messages name it.
  [[nodiscard]] std::string database_path() const { return held() + "/db"; }
  [[nodiscard]] std::string shown_database_path() const { return path_ + "/db"; }
  // Its process is ending: who wants the directory next may wait for it.
  void mark_ending() noexcept;
  // Whether there was no database, and keep() was not called yet.
  [[nodiscard]] bool is_fresh() const noexcept { return fresh_; }

 private:
  StateDir(std::string path, bool created) : path_(std::move(path)), created_(created) {}

  std::string path_;
  UniqueFd fd_;
  bool created_ = false;
  bool fresh_ = false;
  std::optional<FileLock> lock_;
};

// Where the parts are, for those who only look.
[[nodiscard]] std::string lock_path_of(const std::string& state);
[[nodiscard]] std::string control_path_of(const std::string& state);

}  // namespace kvcachefs
