// A thread that asks the pool for the owners and modes of what is here already: where another node has changed them, and,
// once for each file that is used, where that may have been missed. Nobody waits for it; what is here holds until then.
//
// Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "backend/pool/pool_service.h"
#include "fs/node/core.h"

namespace kvcachefs {

class OwnerRefresh {
 public:
  // What does not fit is asked for when it is looked up.
  static constexpr std::size_t kMostWaiting = 65'536;

  OwnerRefresh(Core& core, PoolService& service) : core_(core), service_(service) {}
  ~OwnerRefresh() { stop(); }
  OwnerRefresh(const OwnerRefresh&) = delete;
  OwnerRefresh& operator=(const OwnerRefresh&) = delete;

  void start();
  void stop();
  // False: too many wait, or it does not run. Never waits.
  bool want(InodeNumber inode);

 private:
  static constexpr std::chrono::milliseconds kCallDeadline{5000};
  static constexpr int kMostTries = 3;

  void run();
  // False: its owner was changed here meanwhile.
  Result<bool> refresh(Inode& inode);

  Core& core_;
  PoolService& service_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;                     // under mutex_, as the next
  std::deque<InodeNumber> order_;            // in which they are asked for
  std::unordered_set<InodeNumber> waiting_;  // the same
  std::thread thread_;
};

}  // namespace kvcachefs
