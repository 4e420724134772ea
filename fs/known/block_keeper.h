// The thread that keeps blocks and their order on the disk in step with what is in memory.
//
//   at a start       gives the learner the order of the last run, beside requests that come already;
//   when there is    reads the names below directories that were renamed or told another layout,
//                    and makes their rows anew;
//   once a minute,   writes the order that was learned since, and what else is written so seldom. A crash
//   and at the stop  loses a minute of it.
//
// Each row is written under its inode's lock, as all changes of names are: a row never outlives its
// name.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "fs/node/core.h"

namespace kvcachefs {

class BlockKeeper {
 public:
  // `write`: called once a minute, and at the stop.
  BlockKeeper(Core& core, std::function<void()> write)
      : core_(core), write_(std::move(write)) {}
  ~BlockKeeper() { stop(); }
  BlockKeeper(const BlockKeeper&) = delete;
  BlockKeeper& operator=(const BlockKeeper&) = delete;

  void start();
  // Writes what was learned, and ends the thread. What is still to be read waits for the next start.
  void stop();
  // There are names to read anew.
  void wake();

 private:
  void run();
  void restore();
  void write_order();
  Result<void> write_one(std::uint64_t block, const order::Snapshot& snapshot);
  Result<void> forget_gone(std::uint64_t block, InodeNumber inode);
  // All directories that are noted, one after the other. False: some were noted again
  // meanwhile. Errors: EIO, EBADMSG; the rest is tried later.
  Result<bool> read_anew();
  // One of them. Noted again meanwhile, it stays so.
  Result<void> read_noted(InodeNumber top);
  Result<void> read_tree(InodeNumber top);
  // Of this directory alone.
  Result<void> read_names(InodeNumber directory);
  Result<std::vector<DirEntry>> list_last(InodeNumber directory, std::uint64_t after);
  Result<void> read_name(InodeNumber directory, const DirEntry& entry);
  Result<void> put_to_publish(InodeNumber number);
  [[nodiscard]] bool ending();

  Core& core_;
  const std::function<void()> write_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;  // under mutex_
  bool unread_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
