#include "fs/life/stall_teller.h"

#include <pthread.h>

#include <algorithm>

#include "backend/base/clock.h"
#include "backend/base/log.h"

namespace kvcachefs {
namespace {

constexpr std::chrono::seconds kPeriod{1};
constexpr std::uint32_t kStateDisk = UINT32_MAX;  // devices have their index

}  // namespace

void StallTeller::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "kv-stalls");
}

void StallTeller::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void StallTeller::look(std::uint32_t disk, std::int64_t stalled_ns, const std::string& what) {
  const auto at = told_.find(disk);
  if (stalled_ns >= StallWatch::kTold) {
    if (at == told_.end())
      log_error(
          "{} takes no writes seconds={}: what changes something there waits, what is there is "
          "read",
          what, stalled_ns / kNanosPerSecond);
    told_[disk] = std::max(told_[disk], stalled_ns);
  } else if (stalled_ns == 0 && at != told_.end()) {
    log_info("{} takes writes again after_seconds={}", what, at->second / kNanosPerSecond);
    told_.erase(at);
  }
}

void StallTeller::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kPeriod, [this] { return stopping_; })) return;
    }
    look(kStateDisk, core_.catalog.stalled(), "the disk of the state directory");
    for (std::uint32_t index = 0; index < core_.devices->indices(); ++index)
      look(index, core_.devices->stalled(index),
           "device " + core_.devices->at(index).info().path);
  }
}

}  // namespace kvcachefs
