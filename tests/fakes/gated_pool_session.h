// A real session whose reads of files' bytes go through a gate: a test holds them up, lets some of
// them through, slows them down, or has them fail.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "tests/fakes/forwarding_pool_session.h"

namespace kvcachefs::testing {

// One for all sessions of a mount.
class ReadGate {
 public:
  // From now on only bytes below `end` pass; others wait, until their deadline.
  void close_at(std::uint64_t end) { set(end, std::nullopt, 0); }
  // As well as those of this MiB.
  void let_through(std::uint64_t at) {
    const std::lock_guard lock(mutex_);
    also_ = at;
    changed_.notify_all();
  }
  void open() { set(UINT64_MAX, std::nullopt, 0); }
  // What does not pass fails with this.
  void fail_at(std::uint64_t end, int code) { set(end, std::nullopt, code); }

  Result<void> pass(std::uint64_t at, std::uint64_t size, Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto passes = [&] { return at + size <= end_ || (also_ == at && size <= kAlso); };
    const bool is_told =
        changed_.wait_until(lock, deadline, [&] { return passes() || code_ != 0; });
    if (!passes()) {
      ++failures_;
      return fail(is_told ? code_ : ETIMEDOUT, "gate");
    }
    bytes_ += size;
    return {};
  }
  // From now on so many bytes a second come, of all reads together.
  void slow_down(std::uint64_t bytes_a_second) {
    const std::lock_guard lock(rate_mutex_);
    rate_ = bytes_a_second;
  }
  void wait_for_part(std::uint64_t size) {
    const std::lock_guard lock(rate_mutex_);
    if (rate_ > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(size * 1'000'000 / rate_));
  }
  // That have passed.
  [[nodiscard]] std::uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  // Reads that have failed here.
  [[nodiscard]] std::uint64_t failures() const {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  static constexpr std::uint64_t kAlso = std::uint64_t{1} << 20;

  void set(std::uint64_t end, std::optional<std::uint64_t> also, int code) {
    const std::lock_guard lock(mutex_);
    end_ = end;
    also_ = also;
    code_ = code;
    changed_.notify_all();
  }

  std::mutex rate_mutex_;  // the way of all bytes
  std::uint64_t rate_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t end_ = UINT64_MAX;
  std::optional<std::uint64_t> also_;
  int code_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t failures_ = 0;
};

class GatedPoolSession : public ForwardingPoolSession {
 public:
  GatedPoolSession(std::unique_ptr<PoolSession> below, std::shared_ptr<ReadGate> gate)
      : ForwardingPoolSession(std::move(below)), gate_(std::move(gate)) {}

  Result<PoolRead> read_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                              const PoolSink& sink, PoolPace pace, Deadline deadline) override {
    TRY(gate_->pass(offset, size, deadline));
    const PoolSink slowly = [&](std::uint64_t at, std::span<const std::byte> bytes) {
      gate_->wait_for_part(bytes.size());
      return sink(at, bytes);
    };
    return below_->read_parts(file, offset, size, slowly, pace, deadline);
  }

 private:
  const std::shared_ptr<ReadGate> gate_;
};

}  // namespace kvcachefs::testing
