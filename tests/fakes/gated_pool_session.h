// A real session whose reads of files' bytes go through a gate: a test holds them up, lets some of them through, or has
// them fail.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/pool/pool_session.h"

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

class GatedPoolSession : public PoolSession {
 public:
  GatedPoolSession(std::unique_ptr<PoolSession> below, std::shared_ptr<ReadGate> gate)
      : below_(std::move(below)), gate_(std::move(gate)) {}

  Result<std::uint64_t> read_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                                   const PoolSink& sink, Deadline deadline) override {
    TRY(gate_->pass(offset, size, deadline));
    return below_->read_parts(file, offset, size, sink, deadline);
  }

  [[nodiscard]] bool is_alive() override { return below_->is_alive(); }
  Result<PoolFilePtr> open_to_write(std::string_view path, Deadline deadline) override {
    return below_->open_to_write(path, deadline);
  }
  Result<PoolFound> find(std::string_view path, Deadline deadline) override {
    return below_->find(path, deadline);
  }
  Result<PoolStatus> status(PoolFile& file, Deadline deadline) override {
    return below_->status(file, deadline);
  }
  Result<PoolFilePtr> open(std::string_view path, Deadline deadline) override {
    return below_->open(path, deadline);
  }
  Result<PoolFilePtr> create(std::string_view path, std::uint32_t mode,
                             Deadline deadline) override {
    return below_->create(path, mode, deadline);
  }
  Result<void> write_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                           const PoolFill& fill, PoolWrite when, Deadline deadline) override {
    return below_->write_parts(file, offset, size, fill, when, deadline);
  }
  Result<void> commit(PoolFile& file, Deadline deadline) override {
    return below_->commit(file, deadline);
  }
  Result<void> link(PoolFile& file, std::string_view to, Deadline deadline) override {
    return below_->link(file, to, deadline);
  }
  Result<void> rename(std::string_view from, std::string_view to, Deadline deadline) override {
    return below_->rename(from, to, deadline);
  }
  Result<void> remove(std::string_view path, Deadline deadline) override {
    return below_->remove(path, deadline);
  }
  Result<void> make_directory(std::string_view path, std::uint32_t mode,
                              Deadline deadline) override {
    return below_->make_directory(path, mode, deadline);
  }
  Result<void> remove_directory(std::string_view path, Deadline deadline) override {
    return below_->remove_directory(path, deadline);
  }
  Result<void> list(std::string_view path, const std::function<bool(const PoolEntry&)>& visit,
                    Deadline deadline) override {
    return below_->list(path, visit, deadline);
  }
  Result<void> list_statuses(
      std::string_view path,
      const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit,
      Deadline deadline) override {
    return below_->list_statuses(path, visit, deadline);
  }
  Result<void> touch(PoolFile& file, Deadline deadline) override {
    return below_->touch(file, deadline);
  }
  Result<PoolSpace> space(Deadline deadline) override { return below_->space(deadline); }

 private:
  const std::unique_ptr<PoolSession> below_;
  const std::shared_ptr<ReadGate> gate_;
};

}  // namespace kvcachefs::testing
