#include "fs/pool/frame_flight.h"

#include <algorithm>
#include <utility>

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

using SteadyClock = std::chrono::steady_clock;

static_assert(FrameTable::kFrame % kPoolChunk == 0);
constexpr std::size_t kChunksOfFrame = FrameTable::kFrame / kPoolChunk;

}  // namespace

bool is_passing(int code) noexcept {
  return code == ETIMEDOUT || code == ENOTCONN || code == EBUSY || code == EAGAIN ||
         code == EIO;
}

void FrameBell::ring() {
  const std::lock_guard lock(mutex_);
  is_rung_ = true;
  rung_.notify_one();
}

void FrameBell::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  rung_.notify_one();
}

bool FrameBell::wait(SteadyClock::time_point until) {
  std::unique_lock lock(mutex_);
  rung_.wait_until(lock, until, [this] { return is_rung_ || ended_; });
  is_rung_ = false;
  return !ended_;
}

FrameFlight::FrameFlight(PoolKnown&& known, UniqueFd fd, std::shared_ptr<FrameBell> bell)
    : known_(std::move(known)),
      fd_(std::move(fd)),
      bell_(std::move(bell)),
      table_(known_.status.size),
      sums_(static_cast<std::size_t>((known_.status.size + kPoolChunk - 1) / kPoolChunk)),
      chunks_(sums_.size(), false),
      chunks_left_(table_.count(), static_cast<std::uint8_t>(kChunksOfFrame)) {
  if (const std::size_t over = sums_.size() % kChunksOfFrame; over != 0)
    chunks_left_.back() = static_cast<std::uint8_t>(over);
}

// ---- who reads

bool FrameFlight::has(std::uint64_t offset, std::uint64_t size) const {
  const std::lock_guard lock(mutex_);
  return table_.has(table_.covering(offset, size));
}

Result<void> FrameFlight::wait_for(std::uint64_t offset, std::uint64_t size) {
  const auto began = SteadyClock::now();
  std::unique_lock lock(mutex_);
  const FrameTable::Range range = table_.covering(offset, size);
  if (table_.has(range)) return {};
  const Error cannot = fail(EIO, "pool: the bytes of an open file cannot be had");
  const bool is_asked_again = range.first >= given_up_.first && range.end() <= given_up_.end();
  if (is_asked_again && progress_ < gave_up_ && began < gave_up_ + kAskedAgain) return cannot;
  const FrameTable::Want want = table_.want(range);
  const auto at_most =
      began + kNoProgress +
      std::chrono::milliseconds(table_.wanted() * FrameTable::kFrame / (kSlowestRead / 1000));
  bell_->ring();
  Result<void> outcome;
  while (!table_.has(range)) {
    const auto until = std::min(std::max(began, progress_) + kNoProgress, at_most);
    if (failure_ || SteadyClock::now() >= until) {
      gave_up_ = SteadyClock::now();
      given_up_ = range;
      outcome = cannot;
      break;
    }
    changed_.wait_until(lock, until);
  }
  table_.unwant(want);
  return outcome;
}

Result<void> FrameFlight::wait_until_done() {
  const auto began = SteadyClock::now();
  const auto at_most = began + kNoProgress +
                       std::chrono::milliseconds(known_.status.size / (kSlowestRate / 1000));
  std::unique_lock lock(mutex_);
  bell_->ring();
  while (!done_ && !failure_) {
    const auto until = std::min(std::max(began, progress_) + kNoProgress, at_most);
    if (SteadyClock::now() >= until)
      return fail(ETIMEDOUT, "pool: a large file comes too slowly");
    changed_.wait_until(lock, until);
  }
  return failure_ ? Result<void>(*failure_) : Result<void>{};
}

void FrameFlight::joined() {
  const std::lock_guard lock(mutex_);
  ++readers_;
}

void FrameFlight::left() {
  {
    const std::lock_guard lock(mutex_);
    --readers_;
  }
  bell_->ring();
}

// ---- the fetcher

FrameFlight::State FrameFlight::state() const {
  const std::lock_guard lock(mutex_);
  return {.frames = table_.count(),
          .missing = table_.missing(),
          .readers = readers_,
          .asked = asked_,
          .working = working_,
          .is_wanted = table_.is_wanted(),
          .failure = failure_,
          .failed_ns = failed_ns_,
          .failing_ns = failing_ns_};
}

std::optional<FrameTable::Range> FrameFlight::next_wanted() {
  const std::lock_guard lock(mutex_);
  const auto next = table_.next_wanted();
  if (next) ++asked_;
  return next;
}

std::optional<FrameTable::Range> FrameFlight::next_ahead() {
  const std::lock_guard lock(mutex_);
  const auto next = table_.next_ahead();
  if (next) ++asked_;
  return next;
}

void FrameFlight::answered(FrameTable::Range range, const Result<void>& outcome) {
  {
    const std::lock_guard lock(mutex_);
    --asked_;
    table_.ended(range);
    if (outcome.ok()) {
      failed_ns_ = failing_ns_ = 0;
    } else if (is_passing(outcome.error().code)) {
      failed_ns_ = monotonic_now();
      if (failing_ns_ == 0) failing_ns_ = failed_ns_;
    } else if (!failure_) {
      failure_ = outcome.error();
    }
    changed_.notify_all();
  }
  bell_->ring();
}

std::vector<std::uint32_t> FrameFlight::take_sums() {
  const std::lock_guard lock(mutex_);
  return std::move(sums_);
}

void FrameFlight::finish() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

void FrameFlight::fail_for_good(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
  changed_.notify_all();
}

// ---- a thread of the pool

Result<void> FrameFlight::fetch(PoolSession& session, FrameTable::Range range,
                                Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    ++working_;
  }
  const std::uint64_t offset = table_.offset_of(range);
  Result<void> outcome = fetch_part(
      session, known_, offset, table_.size_of(range), fd_.get(), [this] { bytes_came(); },
      [this](std::size_t chunk, std::uint32_t sum) { chunk_arrived(chunk, sum); }, deadline);
  {
    const std::lock_guard lock(mutex_);
    --working_;
  }
  bell_->ring();
  return outcome;
}

// The pool answers, however long this machine takes to write it down.
void FrameFlight::bytes_came() {
  const std::lock_guard lock(mutex_);
  progress_ = SteadyClock::now();
}

void FrameFlight::chunk_arrived(std::size_t chunk, std::uint32_t sum) {
  const std::lock_guard lock(mutex_);
  if (chunks_[chunk]) return;
  chunks_[chunk] = true;
  sums_[chunk] = sum;
  progress_ = SteadyClock::now();
  const std::size_t frame = chunk / kChunksOfFrame;
  if (--chunks_left_[frame] != 0) return;
  table_.arrived(frame);
  changed_.notify_all();
}

}  // namespace kvcachefs
