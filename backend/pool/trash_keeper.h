// Keeps the pool's trash within its bounds, and knows how much is in it: looks at it now and then, and as soon as more has
// gone there than its share.
//
// One thread does it (kv-pool-trash), so that neither heartbeats nor evictions wait for a walk over the trash. Any thread
// may call any method, but start() and the destructor.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "backend/pool/pool_client.h"
#include "backend/pool/pool_trash.h"

namespace kvcachefs {

class TrashKeeper {
 public:
  // What this node is to do with the trash by now.
  struct Duty {
    UnixNanos before = INT64_MIN;  // what was put there before goes, by the server's clock
    UnixNanos now = INT64_MAX;     // by that clock, where it is known
    bool renames = false;          // this node gives files of a time to come names of now
    bool is_bounded = false;       // this node removes what is beyond the trash's share
    std::uint64_t room =
        0;  // of which it has its share, in bytes; 0: all of the pool's filesystem
    std::chrono::nanoseconds pause{
        0};  // until the next look, if no more than its share goes there
  };
  // nullopt: nothing, for the pool is not there.
  using AskDuty = std::function<std::optional<Duty>()>;

  TrashKeeper(PoolClient& client, AskDuty duty) : client_(client), duty_(std::move(duty)) {}
  ~TrashKeeper() { stop(); }
  TrashKeeper(const TrashKeeper&) = delete;
  TrashKeeper& operator=(const TrashKeeper&) = delete;

  void start();
  // Returns when the step that is under way has ended: kStep at the latest, and soon where the client gives up.
  void stop();

  // What is in the trash: what the last look has found, and what went there since. Nothing until the first look.
  [[nodiscard]] PoolTrash trash() const;
  // A file went there, of so many bytes.
  void put(std::uint64_t bytes);

 private:
  using SteadyClock = std::chrono::steady_clock;
  // A step: it lists the trash, and removes files for half of the time, kMostInStep at most.
  static constexpr std::chrono::seconds kStep{10};
  static constexpr std::size_t kMostInStep = 1024;
  // Whether the pool is there.
  static constexpr std::chrono::milliseconds kLookEvery{200};
  // Of the time, a twentieth may go into looks; half where there is more in the trash than its share.
  static constexpr int kRest = 20;
  static constexpr int kRestWhenFull = 1;

  void run();
  Result<TrashSwept> step(const Duty& duty);
  [[nodiscard]] PoolTrash trash_locked() const;
  [[nodiscard]] bool is_too_much() const;

  PoolClient& client_;
  const AskDuty duty_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  PoolTrash put_;      // since the start; under mutex_, as the next
  PoolTrash seen_;     // at the last look
  PoolTrash seen_at_;  // put_ when that began
  PoolTrash most_{.files = UINT64_MAX, .bytes = UINT64_MAX};  // as of the last look
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvcachefs
