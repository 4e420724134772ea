// From a prefix hash to the files that hold it, in whatever layout.
//
// Over the catalog alone: it serves a live mount and, offline, the state directory. What is found is
// true of its path now; an index that is behind (a directory was renamed a moment ago) may lack
// something, and never adds anything.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>

#include "fs/known/place.h"
#include "fs/layout/layout.h"
#include "metadata/catalog.h"

namespace kvcachefs {

struct FoundBlock {
  std::uint64_t number = 0;  // fs/known/block_number.h
  InodeNumber inode = 0;
  InodeNumber directory = 0;
  std::uint32_t uid = 0;  // whose it is
  std::string name;
  std::string path;  // relative to the root
  Recognized file;   // views `path`

  FoundBlock() = default;
  FoundBlock(const FoundBlock&) = delete;
  FoundBlock& operator=(const FoundBlock&) = delete;
};

// The same hash is used by each model, rank, group and part: some thousand files at the most, and
// more are not looked for.
inline constexpr std::size_t kMostFound = 4096;
// Nor are more names looked at than this, of those that lead nowhere any more and of
// directories that are passed over; nor more directories above them than `most_steps`.
inline constexpr std::size_t kMostLookedAt = 16'384;

// Whether what is in a directory may be found; empty: all.
using MayEnter = std::function<Result<bool>(InodeNumber directory)>;

// In the order of directory and name. Files that were never published are left out: nobody may rely
// on them. Errors: EIO, EBADMSG, and those of `may_enter`.
Result<std::list<FoundBlock>> find_blocks(Catalog& catalog, std::string_view hash,
                                          std::size_t limit = kMostFound,
                                          const MayEnter& may_enter = {},
                                          std::size_t most_steps = PlaceWalk::kMostSteps);

// Whether two blocks can follow each other: the same runtime, model, worker, group and part.
[[nodiscard]] bool is_same_series(const Recognized& a, const Recognized& b) noexcept;

}  // namespace kvcachefs
