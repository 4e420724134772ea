// Watches whether the devices still take and give bytes, and says so to Devices: a device that is lost or
// read-only costs its own files only.
//
// A device is checked when somebody has seen it fail, once in a period (a second) while it is not well, and by a read every
// ten periods. It is lost when three checks in a row could not read; until then it only gets no new files. One
// thread a mount, and one of Devices for each check: while that hangs in a dying disk, nothing else does because of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "fs/node/core.h"

namespace kvcachefs {

class DeviceWatch {
 public:
  explicit DeviceWatch(Core& core) : core_(core), period_(core.options.device_period) {}
  ~DeviceWatch() { stop(); }
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  void start();
  // Waits for the check that is under way, some seconds at most.
  void stop();
  // Something on it failed that fails on no device that is well. Any thread; never waits.
  void suspect(std::uint32_t device);

 private:
  struct Question {
    std::mutex mutex;  // a leaf
    bool is_under_way = false;
    TierCheck how = TierCheck::kRead;
    std::optional<Result<void>> answer;
  };

  void run();
  void check(std::uint32_t device, TierCheck how);
  std::optional<Result<void>> ask(std::uint32_t device, TierCheck how);

  Core& core_;
  const std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<std::uint32_t> suspected_;  // under mutex_
  bool stopping_ = false;                        // under mutex_
  // Of who checks, by device: failures in a row, and what was asked last.
  std::unordered_map<std::uint32_t, int> failures_;
  std::unordered_map<std::uint32_t, std::shared_ptr<Question>> asked_;
  std::thread thread_;
};

}  // namespace kvcachefs
