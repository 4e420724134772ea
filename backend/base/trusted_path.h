// Whether others could put something else in the place of what a path leads to: who may write
// to a directory above it may rename what is in that (path_resolution(7), rename(2)), and a
// daemon that runs as root would then write where somebody wants it to.
#pragma once

#include <sys/types.h>

#include <string>

namespace kvcachefs {

// Whether a user may do as root does with what the daemon stands on: root, and the user of this
// process.
[[nodiscard]] bool is_trusted(uid_t uid) noexcept;
// Names the first directory above `path` in which others could replace it, and says why, for
// people: "/srv/x belongs to uid 1000"; "/srv can be written by others (mode 0777)". Empty:
// root and the user of this process alone could. `path` is absolute and resolved. A directory
// that cannot be looked at counts as one of others.
[[nodiscard]] std::string replaceable_at(const std::string& path);
// The same of a directory itself, open or by its path: who else may change what is in it.
[[nodiscard]] std::string writable_by_others(int directory);
[[nodiscard]] std::string writable_by_others(const std::string& directory);

}  // namespace kvcachefs
