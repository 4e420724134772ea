// A directory stream of libc that closes itself.
#pragma once

#include <dirent.h>

#include <memory>

namespace kvcachefs {

struct CloseDir {
  void operator()(DIR* stream) const noexcept { ::closedir(stream); }
};

// Null when opendir(3) or fdopendir(3) failed: errno says why.
using DirStream = std::unique_ptr<DIR, CloseDir>;

}  // namespace kvcachefs
