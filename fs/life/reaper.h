// The reaper: a background thread that removes what no name leads to any more: inodes that were
// unlinked and are no longer open, and backing files that nothing refers to.
//
// The order is what keeps a power cut safe: the catalog is synced first (so that the removal of
// the names is durable), then the backing files are unlinked, then the records go. A crash in
// between leaves an orphan record, and the next start takes the rest from there.
//
// What could not be removed when its turn came (the database or a device failed for a moment), or found no
// place in the queue, stands in the tables of orphans: a walk over these tries it again, a second later at
// first and a minute later in the end. The last run's orphans are met by such a walk, too.
//
// What was evicted goes without the sync, on a thread of its own: on a disk that is being written the sync
// takes as long as all that is written, and the writers wait for this room. A power cut may then bring back
// names of such files; the start after it finds them and drops them (Core::cut). It may also bring back the files
// alone, whose names are gone for good (the database may be on another disk): a third thread looks for these, once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "fs/node/core.h"

namespace kvcachefs {

class Reaper {
 public:
  explicit Reaper(Core& core) : core_(core) {}
  ~Reaper() { stop(); }
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  void start();
  // The inode has no name and nobody refers to it; `evicted`: it lost its names to an eviction. Any thread;
  // never waits. Beyond kMostQueued the number is left to the next walk.
  void add_inode(InodeNumber number, bool evicted);
  // There are orphan objects in the catalog. Any thread; never waits.
  void add_object();
  // Removes what is queued and ends the threads.
  void stop();
  // The last run ended in a crash: the thread's first work is to remove the backing files that
  // were made just before it and got no record. Before start().
  void expect_strays() { strays_ = left_ = true; }
  // There was a last run: the thread removes its orphans beside those of this run. Before start().
  void expect_orphans() { left_ = true; }

 private:
  using Clock = std::chrono::steady_clock;
  // A disk that is full, or fails, may do so for hours.
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{60};
  static constexpr std::size_t kMostQueued = 1 << 20;
  static constexpr std::size_t kBatch = 1024;

  void run();
  void run_evicted();
  // One look at the queues.
  void reap_queued();
  // `durably`: the catalog is synced before the unlinks. What fails is left to the walk.
  void reap_inodes(const std::vector<InodeNumber>& numbers, bool durably);
  Result<void> reap_claimed(const std::vector<InodeNumber>& numbers, bool durably);
  bool remove_copy(std::uint32_t device, ObjectId object);
  // Of what a rewrite has replaced. If somebody has it mapped it counts as his; while that is
  // not known it is asked again soon.
  bool may_be_mapped(std::uint32_t device, ObjectId object);
  // Once all that are in the table; at a stop the first of them.
  Result<void> reap_objects();
  Result<void> remove_strays();
  void run_old_strays();
  // Over the tables of orphans.
  Result<void> walk();
  // As long as the walk finds something left it comes later each time, but not later than
  // `longest_pause`.
  void leave_to_walk(Clock::duration longest_pause = kLongestPause);
  [[nodiscard]] bool stopping();

  Core& core_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable evicted_changed_;
  std::deque<InodeNumber> inodes_;
  std::deque<InodeNumber> evicted_;
  // Being reaped by one of the two threads: an inode of the last run that is evicted now is found by both.
  // True: the other was told of it meanwhile.
  std::unordered_map<InodeNumber, bool> in_hand_;
  bool objects_ = false;
  bool left_ = false;            // the tables hold what no queue does
  Clock::time_point walk_at_{};  // not before
  Clock::duration pause_ = kFirstPause;
  bool stopping_ = false;
  bool strays_ = false;  // of the thread
  std::thread thread_;
  std::thread evicted_thread_;
  std::thread strays_thread_;
};

}  // namespace kvcachefs
