// One large file on its way from the pool: who reads it waits for the frames that he reads, and sees each only after it was
// compared with its checksums. What is to be asked for next, and what comes of it in the end, is its fetcher's affair
// (frame_fetcher.h).
//
// Shared by its readers, its fetcher and the pool's threads; one of these that is stuck may be the last to let it go, so
// nothing here refers to the volume. Any thread; the lock is a leaf, and not held across I/O.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/base/unique_fd.h"
#include "backend/pool/pool_transfer.h"
#include "fs/node/arriving.h"
#include "fs/pool/frame_table.h"

namespace kvcachefs {

// Errors of the way to the server, or of the server itself, rather than of a file.
[[nodiscard]] bool is_passing(int code) noexcept;

// Tells the fetcher's thread that there is something to do; it may have ended.
class FrameBell {
 public:
  void ring();
  void end();
  // Returns when it was rung, at `until`, or when it ended: false.
  bool wait(std::chrono::steady_clock::time_point until);

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
  bool is_rung_ = false;
  bool ended_ = false;
};

class FrameFlight {
 public:
  // A read ends when nothing of its file has come for so long; and by this and, at this rate,
  // all that is waited for when it begins, in any case: frames come in the order in which they
  // are asked for.
  static constexpr std::chrono::milliseconds kNoProgress{2000};
  static constexpr std::uint64_t kSlowestRead = 5'000'000;  // bytes a second
  // A wait for the whole file ends by this and its size at this rate.
  static constexpr std::uint64_t kSlowestRate = 50'000'000;  // bytes a second
  // The kernel asks once more for the page whose read-ahead has failed: its reader has waited already.
  static constexpr std::chrono::milliseconds kAskedAgain{250};

  // `known.file` is open; `fd` has the file's size, and nothing in it.
  FrameFlight(PoolKnown&& known, UniqueFd fd, std::shared_ptr<FrameBell> bell);

  // ---- who reads

  [[nodiscard]] bool has(std::uint64_t offset, std::uint64_t size) const;
  // Errors: EIO.
  Result<void> wait_for(std::uint64_t offset, std::uint64_t size);
  // Whether nobody else does, or has done so without failing: who opens it then waits for its first frame, and says what
  // came of it, which is returned: whether it came.
  [[nodiscard]] bool is_to_be_tried() noexcept { return !tried_.exchange(true); }
  bool tried(const Result<void>& first) noexcept {
    if (!first.ok()) tried_.store(false);
    return first.ok();
  }
  // Until finish() or fail(). Errors: those of fail(), ETIMEDOUT.
  Result<void> wait_until_done();
  // One of them comes or goes.
  void joined();
  void left();
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  // ---- the fetcher

  struct State {
    std::size_t frames = 0;
    std::size_t missing = 0;
    std::size_t readers = 0;
    std::size_t asked = 0;         // ranges that were asked for and not answered
    std::size_t working = 0;       // calls that may still write, answered or not
    bool is_wanted = false;        // somebody waits
    std::optional<Error> failure;  // it will not get any better
    // Monotonic: the last failure to reach the pool, and the first of those since a success; 0:
    // none since then.
    std::int64_t failed_ns = 0;
    std::int64_t failing_ns = 0;
  };
  [[nodiscard]] State state() const;
  // As the methods of FrameTable.
  std::optional<FrameTable::Range> next_wanted();
  std::optional<FrameTable::Range> next_ahead();
  [[nodiscard]] std::uint64_t size_of(FrameTable::Range range) const {
    return table_.size_of(range);
  }
  // The range was answered; without error it is here.
  void answered(FrameTable::Range range, const Result<void>& outcome);
  // What it was found as; its sums are those of what arrived, once nothing is missing.
  [[nodiscard]] const PoolStatus& status() const noexcept { return known_.status; }
  [[nodiscard]] const PoolFilePtr& file() const noexcept { return known_.file; }
  [[nodiscard]] std::vector<std::uint32_t> take_sums();
  [[nodiscard]] const std::optional<PoolSums>& expected() const noexcept { return known_.sums; }
  // Somebody has said what should be in it.
  [[nodiscard]] bool is_compared() const noexcept {
    return known_.sums && known_.sums->speaks_of_bytes();
  }
  void finish();
  // For good. What is here can still be read.
  void fail_for_good(const Error& error);

  // ---- a thread of the pool

  // Brings the range.
  Result<void> fetch(PoolSession& session, FrameTable::Range range, Deadline deadline);

 private:
  void bytes_came();
  void chunk_arrived(std::size_t chunk, std::uint32_t sum);

  const PoolKnown known_;
  const UniqueFd fd_;
  const std::shared_ptr<FrameBell> bell_;

  std::atomic<bool> tried_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  FrameTable table_;
  std::vector<std::uint32_t> sums_;        // of chunks
  std::vector<bool> chunks_;               // whether they are here
  std::vector<std::uint8_t> chunks_left_;  // of each frame
  std::size_t readers_ = 0;
  std::size_t asked_ = 0;
  std::size_t working_ = 0;
  std::chrono::steady_clock::time_point progress_{};
  std::chrono::steady_clock::time_point gave_up_{};  // when a reader did, and on what
  FrameTable::Range given_up_{};
  std::optional<Error> failure_;
  std::int64_t failed_ns_ = 0;
  std::int64_t failing_ns_ = 0;
  bool done_ = false;
};

// One who has the file open.
class FrameReader : public Arriving {
 public:
  explicit FrameReader(std::shared_ptr<FrameFlight> flight) : flight_(std::move(flight)) {
    flight_->joined();
  }
  ~FrameReader() override { flight_->left(); }
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  [[nodiscard]] bool has(std::uint64_t offset, std::uint64_t size) const override {
    return flight_->has(offset, size);
  }
  Result<void> wait_for(std::uint64_t offset, std::uint64_t size) override {
    return flight_->wait_for(offset, size);
  }
  [[nodiscard]] FrameFlight& flight() const noexcept { return *flight_; }

 private:
  const std::shared_ptr<FrameFlight> flight_;
};

}  // namespace kvcachefs
