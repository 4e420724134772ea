// How many bytes of files are under way at a time between a mount and its pool, over all its sessions, in each direction: as
// many as the way there carries without making everything else on it wait. A slow link with all sessions' requests on it
// would hold each lookup up for longer than lookups may take.
//
// As TCP does it: after each limit's worth of answers the limit grows by kStep, if it was what held requests back; it is
// halved where one in ten answers took longer than kSlow, and kManyTimes the quickest of the last minute. The quickest is
// what an answer takes when nothing waits before it.
//
// Any thread; the lock is a leaf.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/pool/patient_reads.h"
#include "backend/pool/quickest.h"

namespace kvcachefs {

enum class PoolWay : std::uint8_t { kRead, kWrite };

class PoolGovernor : public std::enable_shared_from_this<PoolGovernor> {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t kLeast = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kStep = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kDefaultMost = std::uint64_t{32} << 20;
  static constexpr std::chrono::milliseconds kSlow{50};
  static constexpr double kManyTimes = 2.5;

  // One request; it is under way until it is destroyed.
  class Request {
   public:
    Request(std::shared_ptr<PoolGovernor> governor, PoolWay way, std::uint64_t size,
            Clock::time_point sent)
        : governor_(std::move(governor)), way_(way), size_(size), sent_(sent) {}
    ~Request() { governor_->ended(way_, size_); }
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;
    // `is_full`: it was as large as requests are, so that it took as long as they take.
    // How long that was.
    Clock::duration answered(bool is_full, Clock::time_point now = Clock::now()) {
      governor_->answered(way_, size_, is_full, now - sent_, now);
      return now - sent_;
    }

   private:
    const std::shared_ptr<PoolGovernor> governor_;
    const PoolWay way_;
    const std::uint64_t size_;
    const Clock::time_point sent_;
  };

  // `most`: bytes in each direction, whatever the way carries.
  explicit PoolGovernor(std::uint64_t most = kDefaultMost);

  // Null: not now; as soon as the caller's own requests are answered he may ask again. `is_first`: he has none under way,
  // and gets one in any case, so that nobody waits for others.
  std::shared_ptr<Request> admit(PoolWay way, std::uint64_t size, bool is_first,
                                 Clock::time_point now = Clock::now());

  [[nodiscard]] std::uint64_t limit(PoolWay way) const;
  // Of what nobody waits for, which is within the limit, too.
  PatientReads& patient() noexcept { return patient_; }

 private:
  static constexpr std::size_t kLeastAnswers = 4;

  struct Way {
    std::uint64_t limit = 0;
    std::uint64_t under_way = 0;
    bool held_back = false;  // since the limit was looked at last
    std::uint64_t answered = 0;
    std::vector<Clock::duration> took;  // of full requests, the same
    Quickest quickest = {};
  };

  void answered(PoolWay way, std::uint64_t size, bool is_full, Clock::duration took,
                Clock::time_point now);
  void ended(PoolWay way, std::uint64_t size);
  void look(Way& own);
  Way& of(PoolWay way) { return ways_[static_cast<std::size_t>(way)]; }

  const std::uint64_t most_;
  mutable std::mutex mutex_;
  std::array<Way, 2> ways_;  // under mutex_
  PatientReads patient_;
};

}  // namespace kvcachefs
