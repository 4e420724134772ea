// A session that hands every call on to another one; who changes some of them inherits the others.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "backend/pool/pool_session.h"

namespace kvcachefs::testing {

class ForwardingPoolSession : public PoolSession {
 public:
  explicit ForwardingPoolSession(std::unique_ptr<PoolSession> below)
      : below_(std::move(below)) {}

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
  Result<std::uint64_t> make_directory(std::string_view path, std::uint32_t mode,
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
  Result<PoolRead> read_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                              const PoolSink& sink, PoolPace pace, Deadline deadline) override {
    return below_->read_parts(file, offset, size, sink, pace, deadline);
  }

 protected:
  const std::unique_ptr<PoolSession> below_;
};

}  // namespace kvcachefs::testing
