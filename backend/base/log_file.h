// A log file that may be renamed or removed while it is written to, as logrotate(8) does: what comes
// later goes to a new file of its name.
//
// Its directory is held by descriptor: who may rename one above it (trusted_path.h) could else
// choose where root makes a file, and appends. Only a directory that root alone could replace
// is looked up by its path again. A new file of another user, or one with further names, is not
// taken.
//
// Not thread safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

class LogFile {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  // Makes the file if it is not there, with mode 0640. Errors: EINVAL (not a regular file),
  // ELOOP (a symlink), ENXIO (a FIFO that nobody reads), EMLINK (it has further names), EPERM
  // (the one that was open was not of this owner), and the others of open(2); what was open
  // stays so.
  Result<void> open();
  // What cannot be written is lost.
  void append(std::string_view line) noexcept;

 private:
  Result<void> find_directory();
  [[nodiscard]] bool has_moved() const noexcept;

  std::string path_;
  UniqueFd directory_;
  UniqueFd fd_;
  std::int64_t looked_ns_ = 0;  // when has_moved() was asked last
};

}  // namespace kvcachefs
