// The evictor: a background thread that looks at the devices and, ahead of the writers, drops the
// files that go first wherever room is getting short.
//
// Never dropped: what is open, leased, unpublished or being changed, what an application keeps, what a
// directory's policy keeps, and what was stored or used within the last second. Who has more than his share
// goes first (shares.h); others only when nothing of that can go soon and room is so short that writers wait.
// While anybody writes it looks every few milliseconds, else once a second. A dropped file's bytes are free
// when the reaper has unlinked them; until then they count as leaving, so that no more goes than must.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <vector>

#include "fs/budget/room.h"
#include "fs/budget/shares.h"
#include "fs/budget/victim_walk.h"
#include "fs/evict/chain_policy.h"
#include "fs/life/drop_reason.h"
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

  // Set before start(): room is short, and nothing more can go. What is not sealed yet cannot. Of the thread; never waits.
  std::function<void()> on_nothing_left;

  // One look, and what follows from it. Of the thread, and of tests that run without it.
  // True: one has ended, and what it owned may go.
  bool look_after_writers();
  void round();

 private:
  using Clock = std::chrono::steady_clock;
  // What one device is short of.
  struct Need {
    std::int64_t bytes = 0;
    std::int64_t inodes = 0;
    Marks marks;
    std::uint64_t evicted = 0;
    bool leaving = false;  // something will have gone soon, and is no need any more
    [[nodiscard]] bool any() const noexcept { return bytes > 0 || inodes > 0; }
    // A file of so many bytes goes.
    void freed(std::uint64_t file_bytes) noexcept {
      bytes -= static_cast<std::int64_t>(file_bytes);
      --inodes;
      ++evicted;
    }
    // There will be some room when what is leaving has gone.
    [[nodiscard]] bool is_coming() const noexcept {
      return leaving && bytes < static_cast<std::int64_t>(marks.headroom) &&
             inodes < marks.inode_headroom;
    }
    // Too short for waiting until what should go first can go. Writers are slowed when half of the headroom
    // is missing; if it can go `soon`, within a second, they bear more than that.
    [[nodiscard]] bool is_pressing(bool soon) const noexcept {
      const auto headroom = static_cast<std::int64_t>(marks.headroom);
      const auto low = static_cast<std::int64_t>(marks.low);
      return bytes > (soon ? headroom + low : headroom - low) ||
             inodes > (soon ? marks.inode_headroom : marks.inode_low);
    }
  };

  void run();
  [[nodiscard]] bool is_stopping();
  [[nodiscard]] std::vector<Need> needs();
  // Whether what is leaving will have gone soon: not what somebody holds without having it open.
  bool is_leaving_soon(std::uint32_t device, const UsageSums& usage);
  [[nodiscard]] static bool is_short(const std::vector<Need>& needs);
  void become_desperate(const std::vector<Need>& needs);
  [[nodiscard]] Shares shares(const std::vector<Need>& needs) const;
  // Writers cannot wait until what should go first can go.
  [[nodiscard]] bool is_pressing(const std::vector<Need>& needs) const;
  // Whose may go now; all: whoever comes first.
  [[nodiscard]] TenantMask eligible(const std::vector<Need>& needs) const;
  void forget_kept_if_told();
  void look_anew(Clock::time_point now);
  void walk(std::vector<Need>& needs);
  void give_up_overgrown();
  bool give_up(InodeNumber number, int code);
  // What files that are being rewritten held before.
  void drop_all_replaced(std::vector<Need>& needs);
  void begin_walk(Clock::time_point now);
  // To the first in the order: those that the walk has passed over are met again.
  void go_back(Clock::time_point now);
  // False: it is at its end.
  bool walk_on(std::vector<Need>& needs);
  void note_young(const Candidate& candidate, std::uint32_t device);
  // No device that is short has anything that can go, or will soon.
  [[nodiscard]] bool found_nothing(const std::vector<Need>& needs) const;
  [[nodiscard]] bool is_young(const Candidate& candidate, const Inode& inode) const;
  bool is_in_use(const Candidate& sibling, Inode& inode);
  // The next that may go: of who has too much while there is one.
  std::optional<Candidate> next(const std::vector<Need>& needs);
  // Evicts one, and the other files of its block (siblings.h). False: it stays for now.
  bool consider(const Candidate& candidate, std::vector<Need>& needs);
  // What it freed is taken from the need of its device. False: it stays.
  bool evict(const Candidate& candidate, const InodePtr& inode, DropReason reason,
             std::vector<Need>& needs, const std::function<bool(const SealedCopy&)>& wanted);

  Core& core_;
  ChainPolicy policy_;
  VictimWalk walk_;
  Clock::time_point walk_began_{};
  Clock::time_point walked_last_{};
  Clock::time_point went_back_{};
  std::size_t passed_ = 0;        // since then: they stayed for now
  Clock::duration walked_for_{};  // by this walk, without the time in between
  bool walked_all_ = false;       // it came to its end, and may have gone on from there
  bool walk_ended_ = false;
  // What this walk has found that frees room. What is stored meanwhile may come before the place where it is:
  // only one that has evicted nothing says that there is nothing.
  struct Found {
    bool young = false;  // it can go soon
    bool evicted = false;
    [[nodiscard]] bool nothing() const noexcept { return !young && !evicted; }
  };
  std::vector<Found> found_on_;  // by device
  TenantMask found_of_ = 0;      // whose
  bool has_moved_ =
      false;  // in this walk: some were used since, or are to go with others: their turn comes later
  InodeNumber replaced_last_ = 0;
  InodeNumber given_up_last_ = 0;
  Shares shares_;            // as of this round
  bool of_anybody_ = false;  // in this walk: nothing is left of those who have too much
  // Names that directories or applications keep: passed over for a while without a look at them.
  std::unordered_set<std::uint64_t> kept_;
  Clock::time_point kept_since_{};
  struct Leaving {
    std::uint64_t bytes = 0;
    std::uint64_t files = 0;
    Clock::time_point changed{};
  };
  std::vector<Leaving> leaving_;  // by device
  std::uint64_t kept_age_ = 0;    // Knowledge::treatments_age() then
  Clock::time_point told_at_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // under mutex_
  bool woken_ = false;     // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
