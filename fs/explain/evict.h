// Drops what somebody asks to be dropped, a page at a time: sealed files that nobody has open and whose
// policy lets them go. For `kvcachefs evict`.
//
// Any thread; a page takes 50 ms at most, and one file more. Errors: ENOENT, ENOTDIR, EROFS (mounted
// read-only), EIO, EBADMSG, ENOSPC.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/life/obstacle.h"
#include "fs/node/core.h"

namespace kvcachefs {

struct LeftFile {
  std::string path;  // relative to the root
  Obstacle why = Obstacle::kNone;
};

struct EvictPage {
  InodeNumber directory = 0;  // of evict_path(): the path is this directory; nothing was done
  std::uint64_t files = 0;    // dropped
  std::uint64_t bytes = 0;
  std::array<std::uint64_t, kObstacles> left{};
  std::vector<LeftFile> examples;        // of those left, some
  std::vector<InodeNumber> directories;  // in this one
  std::optional<std::uint64_t> next;     // pass as `after`; nullopt: that was the last page
};

Result<EvictPage> evict_path(Core& core, std::string_view path);
// The regular files in a directory, those after `after` (0: all).
Result<EvictPage> evict_directory(Core& core, InodeNumber directory, std::uint64_t after);

}  // namespace kvcachefs
