// What a mount was told of the pool.
#pragma once

#include <cstdint>

#include "fs/known/pool_writes.h"

namespace kvcachefs {

inline constexpr std::uint64_t kMinPoolSize = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxPoolSize = std::uint64_t{1} << 60;

struct PoolOptions {
  PoolWrites writes = PoolWrites::kAll;
  // Bytes that the pool may hold; 0: nothing is evicted there.
  std::uint64_t size = 0;
  // Whose the files and directories are of which the pool does not say it: those that somebody else put there.
  std::uint32_t owner_uid = 0;
  std::uint32_t owner_gid = 0;
};
inline constexpr std::uint32_t kAdoptedFileMode = 0640;
inline constexpr std::uint32_t kAdoptedDirectoryMode = 0750;

}  // namespace kvcachefs
