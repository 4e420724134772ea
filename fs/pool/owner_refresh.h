// A thread that asks the pool for the owners and modes of what is here already, and for what directories were told: where
// another node has changed them, and, once for each file and directory that is used, where that may have been missed. A
// directory may have been removed there then. Nobody waits for it; what is here holds until then.
//
// Any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include "backend/pool/pool_service.h"
#include "fs/node/core.h"

namespace kvcachefs {

class OwnerRefresh {
 public:
  // What does not fit is asked for when it is looked up.
  static constexpr std::size_t kMostWaiting = 65'536;

  // Called for a directory that does not stand on the pool any more, where the copy says; without its lock.
  using OnGone = std::function<void(Inode& directory, const PoolCopy& copy)>;

  OwnerRefresh(Core& core, PoolService& service, OnGone on_gone)
      : core_(core), service_(service), on_gone_(std::move(on_gone)) {}
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
  struct Said;
  Result<Said> ask(const Inode& inode, const std::string& path, const PoolCopy& copy);

  Core& core_;
  PoolService& service_;
  const OnGone on_gone_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;                     // under mutex_, as the next
  std::deque<InodeNumber> order_;            // in which they are asked for
  std::unordered_set<InodeNumber> waiting_;  // the same
  std::thread thread_;
};

}  // namespace kvcachefs
