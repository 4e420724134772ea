// Whether a caller could come to a directory by its path: what he could not he may not learn of
// in other ways. For what the kernel does not check by itself, as names that are made up.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "backend/base/result.h"
#include "fs/volume.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// For one request: what was found out is remembered. One thread.
class Reach {
 public:
  Reach(Catalog& catalog, const Caller& caller) : catalog_(catalog), caller_(caller) {}

  // Whether he may search it and all directories above it (path_resolution(7); ACLs as acl(5)).
  // Errors: EIO, EBADMSG.
  Result<bool> may_enter(InodeNumber directory);
  // The same as a function, for the life of this.
  [[nodiscard]] std::function<Result<bool>(InodeNumber)> asker() {
    return [this](InodeNumber directory) { return may_enter(directory); };
  }
  [[nodiscard]] const Caller& caller() const noexcept { return caller_; }

 private:
  Result<bool> may_search(InodeNumber directory);
  bool is_privileged();
  bool in_group(gid_t group);

  Catalog& catalog_;
  const Caller caller_;
  std::optional<bool> privileged_;
  std::unordered_map<gid_t, bool> groups_;
  std::unordered_map<InodeNumber, bool> known_;
};

}  // namespace kvcachefs
