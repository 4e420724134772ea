// The expirer: a background thread that drops what nobody needs any more although there is room: files
// that were not used for their time to live (user.kvcachefs.ttl), and what nobody has used for a day of
// temporaries (is_temporary_name()) and of names whose bytes are on the pool alone.
//
// It goes along the order of eviction from its old end to what is too young to have expired, some
// thousand files a second, and begins again after a while. Never dropped: what an eviction never takes
// (fs/life/evict_file.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include "fs/budget/victim_walk.h"
#include "fs/evict/chain_policy.h"
#include "fs/node/core.h"

namespace kvcachefs {

class Expirer {
 public:
  explicit Expirer(Core& core);
  ~Expirer() { stop(); }
  Expirer(const Expirer&) = delete;
  Expirer& operator=(const Expirer&) = delete;

  void start();
  void stop();
  // There is a shorter time to live than before. Any thread; never waits.
  void wake();

  // From the oldest file to the first one that cannot have expired at `now_ns` (Knowledge::now()); it may
  // stop in between, and goes on there when called again. False: it is through. Of the thread, and of
  // tests that run without it.
  bool step(std::int64_t now_ns);

 private:
  void run();
  void consider(const Candidate& candidate, std::int64_t age_ns);

  Core& core_;
  ChainPolicy policy_;
  VictimWalk walk_;
  bool under_way_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  bool woken_ = false;     // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
