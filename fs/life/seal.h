// The seal: a background thread that makes written files durable and takes the checksums they
// are verified by.
//
// It waits for the end of a burst of stores (kQuiet without a new file, kLongestWait at most),
// then takes the unsealed files that nobody has open for writing, in batches: status,
// fdatasync, checksums, an equal status again, one commit each, and one sync of the catalog for
// the batch. Of a file that was only added to since its last seal what is new is read. Another one
// that is large, and changed again and again, waits longer for its next seal, unless somebody
// waits for that. A file that fails its fdatasync is poisoned. Of several disks each has a batch of
// its own: one that does not answer is left to itself, and has its turn again when it does.
//
// It keeps no queue: what is unsealed is a table of the catalog, so a backlog costs no memory
// and survives a crash.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "fs/node/core.h"

namespace kvcachefs {

struct SealCandidate;

class Sealer {
 public:
  explicit Sealer(Core& core) : core_(core) {}
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  void start();
  // A file may be ready: its last writer has gone. Any thread; never waits.
  void wake(InodeNumber number);
  // Somebody waits for what is ready: no end of a burst is waited for. Any thread; never waits.
  void hurry();
  // The catalog should be synced soon. Any thread; never waits. Returns what is_synced() takes.
  std::uint64_t want_sync();
  // Returns true when a sync that began after that want_sync() has succeeded. Any thread.
  [[nodiscard]] bool is_synced(std::uint64_t wanted) const noexcept {
    return synced_ >= wanted;
  }
  // Seals that are in the catalog, or are about to be, and are not on the disk yet. Any thread. When it is 0 after the table
  // of the unsealed has shown that a file is sealed, a power cut keeps that file.
  [[nodiscard]] std::uint64_t unsynced() const noexcept {
    // In this order: a seal that is under way becomes one that is committed, then one on disk.
    const std::uint64_t on_disk = on_disk_;
    const std::uint64_t under_way = under_way_;
    return under_way + (committed_ - on_disk);
  }
  // Seals what is ready, for `deadline` at most, and ends the thread. A sync that does not come
  // back is waited for.
  void stop(std::chrono::milliseconds deadline);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kQuiet{500};
  static constexpr std::chrono::milliseconds kLongestWait{10'000};
  static constexpr std::chrono::milliseconds kLongestRetry{30'000};
  // One sync of the device and one of the catalog for all: who stores meanwhile waits for each. In bytes as well, for what is
  // sealed counts when the batch is done.
  static constexpr std::size_t kBatch = 512;
  static constexpr std::uint64_t kBatchBytes = 256 << 20;
  // Longer than a disk that works takes for most batches.
  static constexpr std::chrono::seconds kLongestBatch{2};

  using Batch = std::vector<SealCandidate>;  // of one disk
  using Batches = std::map<std::uint32_t, std::unique_ptr<Batch>>;
  struct Outcome {
    std::uint64_t sealed = 0;             // in the catalog, and not yet on the disk
    InodeNumber first_left = UINT64_MAX;  // still unsealed: the next pass must look again
    bool retry = false;                   // soon, for it failed
    bool look_soon = false;               // somebody had the lock of one
    std::int64_t due_ns = 0;              // when the first that has to wait is; 0: none has
    void leave(InodeNumber number) noexcept;
    void leave_and_retry(InodeNumber number) noexcept;
    void postpone(std::int64_t until_ns) noexcept;
    void add(const Outcome& other) noexcept;
  };

  void run();
  // One walk over the unsealed files.
  void pass();
  // The ready ones among these, as many as are done at a time, by disk; `after` becomes the last
  // that was looked at.
  Batches collect(const std::vector<InodeNumber>& numbers, InodeNumber& after,
                  Outcome& outcome);
  // Those of several disks beside each other, for kLongestBatch: what is not done then goes on
  // by itself.
  Outcome seal(Batches batches);
  class BatchUnderWay;
  Outcome seal_all(Batch& batch);
  void seal_file(SealCandidate& file, Outcome& outcome);
  // Syncs what was sealed. False: that failed.
  bool finish(std::uint64_t sealed);
  void finish_late(std::uint32_t disk, const Outcome& outcome);
  // As wake(); the caller holds the lock.
  void wake_locked(InodeNumber number);
  // Of the catalog. False: it failed, and was logged.
  bool sync();
  [[nodiscard]] bool stopping();
  [[nodiscard]] bool out_of_time();

  Core& core_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  Clock::time_point stop_by_{};
  bool pending_ = false;
  bool sync_wanted_ = false;
  std::uint64_t wanted_ = 0;  // syncs, since the start
  std::atomic<std::uint64_t> synced_{0};
  std::atomic<std::uint64_t> under_way_{0};  // seals
  std::atomic<std::uint64_t> committed_{0};
  std::atomic<std::uint64_t> on_disk_{0};  // of those
  std::set<std::uint32_t> busy_;           // disks of which a batch is under way; under mutex_
  std::condition_variable none_busy_;
  bool hurried_ = false;
  bool is_hurried_pass_ = false;  // the pass that is under way; under mutex_
  bool is_postponed_ = false;     // something waits though it is ready; under mutex_
  Clock::time_point first_wake_{};
  Clock::time_point last_wake_{};
  Clock::duration retry_after_ = kQuiet;
  // No unsealed inode that may be ready has a smaller number: where the next walk begins.
  InodeNumber from_ = 0;
  std::thread thread_;
};

}  // namespace kvcachefs
