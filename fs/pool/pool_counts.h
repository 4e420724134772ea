// Numbers for `status`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/base/result.h"
#include "backend/pool/pool_trash.h"

namespace kvcachefs {

struct PoolCounts {
  std::uint64_t asked = 0;   // lookups that asked the pool
  std::uint64_t found = 0;   // and found the name there
  std::uint64_t loaded = 0;  // files that came from it
  std::uint64_t loaded_bytes = 0;
  std::uint64_t missed = 0;     // opens that the pool did not answer in time, or not rightly
  std::uint64_t damaged = 0;    // loads of files that were not what was published
  std::uint64_t arriving = 0;   // large files that are read while they come, now
  std::uint64_t published = 0;  // files
  std::uint64_t published_bytes = 0;
  std::uint64_t duplicates = 0;  // files that another node had published first
  std::uint64_t removed = 0;     // names taken away there
  std::uint64_t dropped = 0;     // names taken away here because they went there
  std::uint64_t evicted = 0;     // files, from the pool
  std::uint64_t evicted_bytes = 0;
  std::uint64_t size = 0;  // bytes that the pool may hold; 0: this mount does not evict there
  // And that it holds, files and trash together, as far as is known; with a size.
  std::uint64_t used = 0;
  PoolTrash trash;               // as far as is known
  std::uint64_t failed = 0;      // publications and removals that have to be tried again
  std::uint64_t obstructed = 0;  // files that stay here: the pool has something else there
  Error stopped_for{0, ""};      // why write-back does not go on; code 0: it does
  // kMostCounted: that many, or more.
  static constexpr std::size_t kMostCounted = 1000;
  std::uint64_t to_publish = 0;      // files and directories that wait
  std::uint64_t to_remove = 0;       // names
  std::uint64_t owners_to_tell = 0;  // files and directories whose owner or mode was changed
  // As of the last look, once a second or so: files that wait for publication and their bytes.
  std::uint64_t queued = 0;
  std::uint64_t queued_bytes = 0;
  std::uint64_t skipped =
      0;  // that were taken from there since it was too long, and were not published
};

}  // namespace kvcachefs
