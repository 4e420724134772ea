// The pool's own budget: what was used longest ago goes when the pool is fuller than the mounts were told.
//
//     counted ──► more than nine tenths ──► the coldest of the own tops go, until it is eight tenths
//
// What goes is in the trash first (backend/pool/pool_trash.h), where it takes as much room as before. The trash has a
// share of its own; what is in it beyond that counts as the files do. Who publishes waits while files and trash together
// are as much as the pool may hold (backend/pool/pool_room.h).
//
// The directories at the top of the pool are shared out among the living nodes that were given a size
// (backend/pool/pool_sweep.h); each counts and evicts below its own ones, and says in its heartbeat what it found. While
// one has not yet counted what is its own by now, nobody evicts. Files that are to be kept stay, and those that somebody
// else has put there, unless their names say that they are KV cache.
//
// One thread does it (kv-pool-evict).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/pool/pool_service.h"
#include "backend/pool/pool_tally.h"
#include "fs/pool/pool_counts.h"
#include "fs/pool/pool_files.h"

namespace kvcachefs {

class PoolEvictor {
 public:
  // `size`: what the pool may hold, in bytes; not 0.
  PoolEvictor(Catalog& catalog, PoolService& service, PoolFiles& files, std::uint64_t size)
      : catalog_(catalog), service_(service), files_(files), size_(size) {}
  ~PoolEvictor() { stop(); }
  PoolEvictor(const PoolEvictor&) = delete;
  PoolEvictor& operator=(const PoolEvictor&) = delete;

  void start();
  void stop();
  void add_counts(PoolCounts& counts) const;

 private:
  using SteadyClock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLookEvery{500};
  // What others put there by hand is found then.
  static constexpr std::chrono::hours kCountEvery{1};
  // Whether the pool's filesystem has the room for its size; at once when somebody finds that it has not.
  static constexpr std::chrono::seconds kLookForRoomEvery{10};
  // What was published since is counted then, too, where there is no room for more.
  static constexpr std::chrono::seconds kCountFullEvery{60};
  // After a round in which nothing could go.
  static constexpr std::chrono::seconds kHopeless{60};
  static constexpr std::chrono::seconds kListDeadline{60};
  static constexpr std::chrono::seconds kCallDeadline{5};
  static constexpr std::size_t kMostStaying = 262'144;

  void run();
  void look();
  [[nodiscard]] bool is_count_old(std::uint64_t share) const;
  Result<void> count(const std::vector<Uuid>& nodes);
  void make_uses_of_now(const std::vector<std::string>& paths);
  Result<std::shared_ptr<const PoolTally>> tally(const std::vector<Uuid>& nodes);
  Result<std::uint64_t> limit(std::uint64_t& used);
  void evict(std::uint64_t bytes);
  // kStays: for as long as it is there. kUsed: since it was counted, or it has gone.
  enum class Outcome : std::uint8_t { kEvicted, kStays, kUsed };
  Result<Outcome> evict_one(const PoolColdFile& file);
  bool sleep(std::chrono::milliseconds time);

  Catalog& catalog_;
  PoolService& service_;
  PoolFiles& files_;
  const std::uint64_t size_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> evicted_{0};
  std::atomic<std::uint64_t> evicted_bytes_{0};

  // Of the thread: the last count.
  std::vector<PoolColdFile> cold_;
  // Numbers of files that may not go: those behind them in the order would not be found otherwise.
  PoolTally::Numbers staying_;
  bool tells_taken_ = false;
  std::uint64_t own_ = 0;       // bytes, less what was evicted since
  std::uint64_t share_ = 0;     // who shared the tops then
  std::uint64_t grown_at_ = 0;  // service_.grown() then
  SteadyClock::time_point counted_{};
  bool is_used_up_ = true;  // cold_, or there was no count yet
  // The file of which nobody heard whether it went: it comes next again, and the others are told then.
  std::uint64_t unheard_ = 0;
  std::uint64_t most_ = size_;  // limit(), when that was asked last
  SteadyClock::time_point staying_since_{};
  SteadyClock::time_point looked_for_room_{};
  SteadyClock::time_point hopeless_until_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvcachefs
