// Says in the log when a disk takes no writes, or gives nothing, without an error, and when it
// does again: whoever needs it waits in the kernel, and to its users that looks like a mount
// that hangs. One thread, which itself touches no disk but the log's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

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
  enum class Lack : std::uint8_t { kWrites, kAnswers };
  // Says what has become of one disk; `ns`: for how long it has been without that.
  void look(std::uint32_t disk, Lack lack, std::int64_t ns, const std::string& name);

  Core& core_;
  // What was said: for how long it had been so.
  std::map<std::pair<std::uint32_t, Lack>, std::int64_t> told_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
