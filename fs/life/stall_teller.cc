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

void StallTeller::look(std::uint32_t disk, Lack lack, std::int64_t ns,
                       const std::string& name) {
  const bool writes = lack == Lack::kWrites;
  const auto at = told_.find({disk, lack});
  if (ns >= StallWatch::kTold) {
    if (at == told_.end())
      log_error("{} {} seconds={}: {}", name, writes ? "takes no writes" : "gives nothing",
                ns / kNanosPerSecond,
                writes ? "what changes something there waits, what is there is read"
                       : "what is not in memory waits, or is a miss");
    std::int64_t& longest = told_[{disk, lack}];
    longest = std::max(longest, ns);
  } else if (ns == 0 && at != told_.end()) {
    log_info("{} {} again after_seconds={}", name, writes ? "takes writes" : "gives bytes",
             at->second / kNanosPerSecond);
    told_.erase(at);
  }
}

void StallTeller::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kPeriod, [this] { return stopping_; })) return;
    }
    look(kStateDisk, Lack::kWrites, core_.catalog.stalled(), "the disk of the state directory");
    for (std::uint32_t index = 0; index < core_.devices->indices(); ++index) {
      const std::string name = "device " + core_.devices->at(index).info().path;
      look(index, Lack::kWrites, core_.devices->stalled(index), name);
      look(index, Lack::kAnswers, core_.devices->silent(index), name);
    }
  }
}

}  // namespace kvcachefs
