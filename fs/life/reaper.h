// The reaper: a background thread that removes what no name leads to any more: inodes that were
// unlinked and are no longer open, and backing files that nothing refers to.
//
// The order is what keeps a power cut safe: the catalog is synced first (so that the removal of
// the names is durable), then the backing files are unlinked, then the records go. A crash in
// between leaves an orphan record, and the next start takes the rest from there.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "fs/node/core.h"

namespace kvcachefs {

class Reaper {
 public:
  explicit Reaper(Core& core) : core_(core) {}
  ~Reaper() { stop(); }
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  void start();
  // The inode has no name and nobody refers to it. Any thread; never waits. Beyond kMostQueued
  // the number is left to the next walk over the orphans' table.
  void add_inode(InodeNumber number);
  // There are orphan objects in the catalog. Any thread; never waits.
  void add_object();
  // Removes what is queued and ends the thread.
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
  Result<void> reap_inodes(const std::vector<InodeNumber>& numbers);
  Result<bool> reap_objects();
  Result<void> remove_strays();
  Result<void> collect_last_runs();
  [[nodiscard]] bool stopping();

  Core& core_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<InodeNumber> inodes_;
  bool objects_ = false;
  bool overflowed_ = false;
  bool strays_ = false;
  InodeNumber last_runs_end_ = 0;  // inodes below it may be orphans of the last run
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvcachefs
