// A pool for tests of who uses one: it answers, fails, or keeps its caller waiting. It has no files.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "backend/pool/pool_session.h"

namespace kvcachefs::testing {

// What all its sessions do.
class FakePool {
 public:
  // Errors of each call; code 0: none.
  void set_error(int code) {
    const std::lock_guard lock(mutex_);
    error_ = code;
  }
  // As a kernel mount whose server is gone: calls do not come back, whatever their deadline.
  void hang(bool hangs) {
    const std::lock_guard lock(mutex_);
    hangs_ = hangs;
    changed_.notify_all();
  }
  [[nodiscard]] int sessions() const {
    const std::lock_guard lock(mutex_);
    return sessions_;
  }
  [[nodiscard]] std::size_t hanging() const {
    const std::lock_guard lock(mutex_);
    return hanging_;
  }

  // The connections of all sessions are closed.
  void cut() { ++cuts_; }
  [[nodiscard]] int cuts() const { return cuts_; }

  Result<void> pass() {
    std::unique_lock lock(mutex_);
    ++hanging_;
    changed_.wait(lock, [this] { return !hangs_; });
    --hanging_;
    if (error_ != 0) return fail(error_, "fake pool");
    return {};
  }
  void opened() {
    const std::lock_guard lock(mutex_);
    ++sessions_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int error_ = 0;
  bool hangs_ = false;
  int sessions_ = 0;  // ever opened
  std::size_t hanging_ = 0;
  std::atomic<int> cuts_{0};
};

class FakePoolSession : public PoolSession {
 public:
  explicit FakePoolSession(std::shared_ptr<FakePool> pool) : pool_(std::move(pool)) {
    pool_->opened();
  }
  [[nodiscard]] bool is_alive() override { return cuts_ == pool_->cuts(); }
  Result<PoolFound> find(std::string_view, Deadline) override {
    if (!is_alive()) return fail(ENOTCONN, "fake pool: cut");
    TRY(pool_->pass());
    return PoolFound{};
  }
  Result<PoolStatus> status(PoolFile&, Deadline) override { return none(); }
  Result<PoolFilePtr> open(std::string_view, Deadline) override { return none(); }
  Result<PoolRead> read_parts(PoolFile&, std::uint64_t, std::uint64_t, const PoolSink&,
                              PoolPace, Deadline) override {
    return none();
  }
  Result<PoolFilePtr> create(std::string_view, std::uint32_t, Deadline) override {
    return none();
  }
  Result<void> write_parts(PoolFile&, std::uint64_t, std::uint64_t, const PoolFill&, PoolWrite,
                           Deadline) override {
    return none();
  }
  Result<void> commit(PoolFile&, Deadline) override { return none(); }
  Result<void> link(PoolFile&, std::string_view, Deadline) override { return none(); }
  Result<void> rename(std::string_view, std::string_view, Deadline) override { return none(); }
  Result<void> remove(std::string_view, Deadline) override { return none(); }
  Result<std::uint64_t> make_directory(std::string_view, std::uint32_t, Deadline) override {
    return none();
  }
  Result<void> remove_directory(std::string_view, Deadline) override { return none(); }
  Result<void> list(std::string_view, const std::function<bool(const PoolEntry&)>&,
                    Deadline) override {
    return none();
  }
  Result<void> list_statuses(std::string_view,
                             const std::function<bool(const PoolEntry&, const PoolStatus&)>&,
                             Deadline) override {
    return none();
  }
  Result<void> touch(PoolFile&, Deadline) override { return none(); }
  Result<PoolSpace> space(Deadline) override { return none(); }

 private:
  static Error none() { return fail(ENOSYS, "fake pool: it has no files"); }
  const std::shared_ptr<FakePool> pool_;
  const int cuts_ = pool_->cuts();
};

}  // namespace kvcachefs::testing
