// Users who may say that a file must not be evicted (--keep-by): by fsync, by truncating what
// was closed, by `kvcachefs pin` or `kvcachefs set policy=keep`. All others' files are cache,
// whatever they call; what root told a directory holds for theirs there.
#pragma once

#include <sys/types.h>

#include <optional>

namespace kvcachefs {

struct Keepers {
  bool anyone = true;
  // Where not anyone: root, and the members of this group. nullopt: root alone.
  std::optional<gid_t> group;

  // Of what a layout keeps, by the name alone: whether its owner's files are such.
  [[nodiscard]] bool may_keep_own(uid_t uid, gid_t gid) const noexcept {
    return anyone || uid == 0 || group == gid;
  }
};

}  // namespace kvcachefs
