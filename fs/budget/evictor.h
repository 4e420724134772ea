// The evictor: a background thread that looks at the devices and, ahead of the writers, drops the
// files that go first wherever room is getting short.
//
// Never dropped: what is open, leased, unpublished or being changed, what an application keeps, and
// what a directory's policy keeps. While anybody writes it looks every few milliseconds, else once a
// second. A dropped file's bytes are free when the reaper has unlinked them; until then they count as
// leaving, so that no more goes than must.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "fs/budget/victim_walk.h"
#include "fs/evict/chain_policy.h"
#include "fs/node/core.h"

namespace kvcachefs {

class Evictor {
 public:
  explicit Evictor(Core& core);
  ~Evictor() { stop(); }
  Evictor(const Evictor&) = delete;
  Evictor& operator=(const Evictor&) = delete;

  void start();
  void stop();
  // There is a writer. Any thread; never waits.
  void wake();

  // One look, and what follows from it. Of the thread, and of tests that run without it.
  void round();

 private:
  using Clock = std::chrono::steady_clock;
  // What one device is short of.
  struct Need {
    std::int64_t bytes = 0;
    std::int64_t inodes = 0;
    std::uint64_t evicted = 0;
    bool leaving = false;  // there will be room without it
    [[nodiscard]] bool any() const noexcept { return bytes > 0 || inodes > 0; }
  };

  void run();
  [[nodiscard]] std::vector<Need> needs();
  // Of what is leaving, what will have gone soon: not what somebody holds without having it open.
  std::uint64_t leaving_soon(std::uint32_t device, std::uint64_t leaving);
  // Evicts one. What it freed is taken from the need of its device.
  void consider(const Candidate& candidate, std::vector<Need>& needs);
  bool take(const InodePtr& inode, std::vector<Need>& needs);

  Core& core_;
  ChainPolicy policy_;
  VictimWalk walk_;
  Clock::time_point walk_began_{};
  bool walk_ended_ = false;
  struct Leaving {
    std::uint64_t bytes = 0;
    Clock::time_point changed{};
  };
  std::vector<Leaving> leaving_;            // by device
  std::vector<Clock::time_point> in_vain_;  // by device: since when nothing was found
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  bool woken_ = false;     // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
