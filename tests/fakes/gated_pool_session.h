// A real session whose reads of files' bytes go through a gate: a test holds them up, lets some of them through, or has
// them fail.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
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
    if (!passes() && code_ != 0) return fail(code_, "gate");
    if (!changed_.wait_until(lock, deadline, passes)) return fail(ETIMEDOUT, "gate");
    bytes_ += size;
    return {};
  }
  // That have passed.
  [[nodiscard]] std::uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
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

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t end_ = UINT64_MAX;
  std::optional<std::uint64_t> also_;
  int code_ = 0;
  std::uint64_t bytes_ = 0;
};

class GatedPoolSession : public ForwardingPoolSession {
 public:
  GatedPoolSession(std::unique_ptr<PoolSession> below, std::shared_ptr<ReadGate> gate)
      : ForwardingPoolSession(std::move(below)), gate_(std::move(gate)) {}

  Result<PoolRead> read_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                              const PoolSink& sink, PoolPace pace, Deadline deadline) override {
    TRY(gate_->pass(offset, size, deadline));
    return below_->read_parts(file, offset, size, sink, pace, deadline);
  }

 private:
  const std::shared_ptr<ReadGate> gate_;
};

}  // namespace kvcachefs::testing
