// Stage-in: who looks a block up will probably load it, and the blocks after it that he looks up next. What
// is not in memory is read ahead into the page cache and verified on the way, in the order of the lookups,
// so that the loads find it there.
//
//     lookup ──► queue ──► read and verified ──► loaded: the page cache's, as any other
//                  │                └──► not loaded within the lease: taken out of the page cache
//                  └──► not read within the lease: forgotten
//
// Bounds: of bytes, what is read ahead and not loaded yet (--stage, and a quarter of the memory that is
// available): when it is used up, the queue waits. Of the disk's time: kThreads files at a time; one at a
// time, and that half of the time, while opens that nobody announced are being verified.
//
// Who opens with O_DIRECT reads past the page cache. For blocks of a model that are opened so, nothing is
// read ahead until kDirectHolds after the last such open.
//
// Any thread; the lock is a leaf.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "fs/known/use_table.h"
#include "fs/life/stage_counts.h"
#include "fs/life/staged_files.h"
#include "fs/life/verify.h"
#include "fs/node/core.h"

namespace kvcachefs {

class Stager {
 public:
  // `most_bytes` 0: it does nothing.
  Stager(Core& core, Verifier& verifier, std::uint64_t most_bytes);
  ~Stager() { stop(); }
  Stager(const Stager&) = delete;
  Stager& operator=(const Stager&) = delete;

  void start();
  // Waits for the files that are being read.
  void stop();
  // A lookup by somebody who may load it has found a block of `size` bytes. Queues and returns.
  void found(Inode& inode, std::uint64_t size);
  // A block is opened for reading. The caller holds the inode's lock. Returns at once.
  void opened(Inode& inode, int flags);

  [[nodiscard]] StageCounts counts() const;

 private:
  static constexpr int kThreads = 4;
  // Some probes of long chains; who asks for more at once is not loading them soon.
  static constexpr std::size_t kMostWaiting = 8192;
  // Runtimes ask again while a request waits: kernel's answers last a second.
  static constexpr std::int64_t kSameHint = 5'000'000'000;
  static constexpr std::int64_t kDirectHolds = 600'000'000'000;

  struct Hint {
    InodeNumber inode = 0;
    std::uint64_t size = 0;
    std::int64_t since = 0;
  };

  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool is_read_directly(const Inode& inode) const;
  void run();
  // The first that may be read now; nullopt: stop() was called. Looks after memory meanwhile.
  std::optional<Hint> wait_for_hint();
  // The caller holds mutex_.
  [[nodiscard]] bool has_room() const;
  void stage(const Hint& hint);
  void drop_unused();
  void drop(const StagedFile& file);
  void look_at_memory();

  Core& core_;
  Verifier& verifier_;
  const std::uint64_t most_bytes_;
  std::array<std::atomic<std::int64_t>, UseTable::kMost + 1> direct_at_{};  // by series
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  bool running_ = false;
  int reading_ = 0;           // threads
  Clock::time_point looked_;  // after memory and what is unused
  std::deque<Hint> waiting_;
  StagedFiles staged_;
  StageCounts counts_;
  std::uint64_t room_;  // most_bytes_, or less while memory is short
  std::vector<std::thread> threads_;
};

}  // namespace kvcachefs
