// The reaper: a background thread that removes what no name leads to any more: inodes that were
// unlinked and are no longer open, and backing files that nothing refers to.
//
// The order is what keeps a power cut safe: the catalog is synced first (so that the removal of
// the names is durable), then the backing files are unlinked, then the records go. A crash in
// between leaves an orphan record, and the next start takes the rest from there.
//
// What was evicted goes without the sync, on a thread of its own: on a disk that is being written the sync
// takes as long as all that is written, and the writers wait for this room. A power cut may then bring back
// names of such files; the start after it finds them and drops them (Core::cut_before).
#pragma once

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
  // never waits. Beyond kMostQueued the number is left to the next walk over the orphans' table.
  void add_inode(InodeNumber number, bool evicted);
  // There are orphan objects in the catalog. Any thread; never waits.
  void add_object();
  // Removes what is queued and ends the threads.
  void stop();
  // The last run ended in a crash: the thread's first work is to remove the backing files that
  // were made just before it and got no record. Before start().
  void expect_strays() { strays_ = true; }
  // There was a last run, whose orphans are all closed: the thread removes them beside those of this
  // run. Before start(), and before this run gives a number.
  void expect_orphans() { last_runs_end_ = core_.catalog.coming_id(); }

 private:
  static constexpr std::size_t kMostQueued = 1 << 20;
  static constexpr std::size_t kBatch = 1024;

  void run();
  void run_evicted();
  // `durably`: the catalog is synced before the unlinks.
  Result<void> reap_inodes(const std::vector<InodeNumber>& numbers, bool durably);
  Result<void> reap_claimed(const std::vector<InodeNumber>& numbers, bool durably);
  Result<bool> reap_objects();
  Result<void> remove_strays();
  Result<void> collect_last_runs();
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
  bool overflowed_ = false;
  bool strays_ = false;
  InodeNumber last_runs_end_ = 0;  // inodes below it may be orphans of the last run
  bool stopping_ = false;
  std::thread thread_;
  std::thread evicted_thread_;
};

}  // namespace kvcachefs
