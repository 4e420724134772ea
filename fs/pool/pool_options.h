// What a mount was told of the pool.
#pragma once

#include <chrono>
#include <cstdint>

#include "backend/pool/pool_governor.h"
#include "fs/known/pool_writes.h"

namespace kvcachefs {

inline constexpr std::uint64_t kMinPoolSize = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxPoolSize = std::uint64_t{1} << 60;

// Bytes a second; a publication that is slower has failed.
inline constexpr std::uint64_t kSlowestPublication = 5'000'000;

inline constexpr std::uint64_t kDefaultPoolQueue = std::uint64_t{256} << 30;
inline constexpr std::uint64_t kMinPoolQueue = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kDefaultPoolQueueFiles = 1'000'000;
inline constexpr std::uint64_t kMaxPoolQueueFiles = 100'000'000;

// Faster, the heartbeats are most of what the pool's server does; slower, a node that is late by a beat is taken for dead
// (PoolService::kDeadAfter).
inline constexpr std::chrono::milliseconds kMinPoolBeat{50};
inline constexpr std::chrono::milliseconds kMaxPoolBeat{5000};

inline constexpr std::uint64_t kMaxPoolInFlight = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kDefaultStageWhole = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMinStageWhole = std::uint64_t{1} << 20;

struct PoolOptions {
  PoolWrites writes = PoolWrites::kAll;
  // Bytes that the pool may hold; 0: nothing is evicted there.
  std::uint64_t size = 0;
  // Bytes: files up to this are fetched whole before an open of them returns; larger ones are read while they come.
  std::uint64_t stage_whole = kDefaultStageWhole;
  // Bytes that may be under way to an NFS pool, and from it, at a time (backend/pool/pool_governor.h).
  std::uint64_t in_flight = PoolGovernor::kDefaultMost;
  // What may wait for publication, bytes and files; of what is beyond it blocks are skipped (fs/pool/queue_bound.h).
  std::uint64_t queue_bytes = kDefaultPoolQueue;
  std::uint64_t queue_files = kDefaultPoolQueueFiles;
  // An fsync waits for the pool (fs/pool/sync_on_pool.h).
  bool syncs = false;
  // How often this mount says on the pool that it lives, and looks which others do.
  std::chrono::nanoseconds beat = std::chrono::seconds{2};
  // Whose the files and directories are of which the pool does not say it: those that somebody else put there.
  std::uint32_t owner_uid = 0;
  std::uint32_t owner_gid = 0;
};
inline constexpr std::uint32_t kAdoptedFileMode = 0640;
inline constexpr std::uint32_t kAdoptedDirectoryMode = 0750;

}  // namespace kvcachefs
