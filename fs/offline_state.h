// The state directory of a mount that does not run, opened to be read: what is written in passing
// (an upgrade of the format) stays in memory.
#pragma once

#include <memory>
#include <string>

#include "backend/base/result.h"
#include "fs/state_dir.h"
#include "metadata/catalog.h"

namespace kvcachefs {

class OfflineState {
 public:
  // Takes the lock of the directory, so that no mount starts meanwhile. `problem` says what is
  // wrong and what to do. Errors: those of StateDir::open() (EBUSY: a daemon has it), EBADMSG,
  // EPROTONOSUPPORT, EIO.
  static Result<std::unique_ptr<OfflineState>> open(const std::string& path,
                                                    std::string& problem);

  [[nodiscard]] Catalog& catalog() noexcept { return *catalog_; }

 private:
  explicit OfflineState(StateDir state) : state_(std::move(state)) {}

  StateDir state_;
  std::unique_ptr<Catalog> catalog_;
};

}  // namespace kvcachefs
