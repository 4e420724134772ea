// Says in the log when a disk takes no writes and gives no error, and when it takes some again:
// whoever writes to it waits in the kernel, and to its users that looks like a mount that
// hangs. One thread, which itself touches no disk but the log's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "fs/node/core.h"

namespace kvcachefs {

class StallTeller {
 public:
  explicit StallTeller(Core& core) : core_(core) {}
  ~StallTeller() { stop(); }
  StallTeller(const StallTeller&) = delete;
  StallTeller& operator=(const StallTeller&) = delete;

  void start();
  void stop();

 private:
  void run();
  // Says what has become of one disk.
  void look(std::uint32_t disk, std::int64_t stalled_ns, const std::string& what);

  Core& core_;
  std::unordered_map<std::uint32_t, std::int64_t>
      told_;  // disks that were said: for how long they had been so
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
