// A pool of which a test makes calls fail.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "tests/fakes/forwarding_pool_session.h"

namespace kvcachefs::testing {

// What all its sessions do.
class PoolFaults {
 public:
  // The errno of a call, by the name of its method and its path; 0: it is made. Of many threads at once. A write that
  // makes its file longer is "grow", and has no path; "linked" and "renamed" are asked of the new name when it has
  // been done, and lose the answer.
  using Decide = std::function<int(std::string_view call, std::string_view path)>;

  void set(Decide decide) {
    const std::lock_guard lock(mutex_);
    decide_ = std::make_shared<const Decide>(std::move(decide));
  }
  void clear() { set(nullptr); }
  // There is room for nothing new.
  void set_full() {
    set([](std::string_view call, std::string_view) {
      return call == "create" || call == "make_directory" || call == "grow" ? ENOSPC : 0;
    });
  }

  Result<void> pass(std::string_view call, std::string_view path) const {
    std::shared_ptr<const Decide> decide;
    {
      const std::lock_guard lock(mutex_);
      decide = decide_;
    }
    const int code = decide != nullptr && *decide ? (*decide)(call, path) : 0;
    if (code != 0) return fail(code, "faulty pool");
    return {};
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Decide> decide_;
};

class FaultyPoolSession : public ForwardingPoolSession {
 public:
  FaultyPoolSession(std::unique_ptr<PoolSession> below,
                    std::shared_ptr<const PoolFaults> faults)
      : ForwardingPoolSession(std::move(below)), faults_(std::move(faults)) {}

  Result<PoolFound> find(std::string_view path, Deadline deadline) override {
    TRY(faults_->pass("find", path));
    return below_->find(path, deadline);
  }
  Result<PoolFilePtr> open(std::string_view path, Deadline deadline) override {
    TRY(faults_->pass("open", path));
    return below_->open(path, deadline);
  }
  Result<PoolFilePtr> open_to_write(std::string_view path, Deadline deadline) override {
    TRY(faults_->pass("open", path));
    return below_->open_to_write(path, deadline);
  }
  Result<PoolFilePtr> create(std::string_view path, std::uint32_t mode,
                             Deadline deadline) override {
    TRY(faults_->pass("create", path));
    return below_->create(path, mode, deadline);
  }
  Result<void> write_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                           const PoolFill& fill, PoolWrite when, Deadline deadline) override {
    if (offset + size > TRY(below_->status(file, deadline)).size)
      TRY(faults_->pass("grow", {}));
    return below_->write_parts(file, offset, size, fill, when, deadline);
  }
  Result<void> link(PoolFile& file, std::string_view to, Deadline deadline) override {
    TRY(faults_->pass("link", to));
    TRY(below_->link(file, to, deadline));
    return faults_->pass("linked", to);
  }
  Result<void> rename(std::string_view from, std::string_view to, Deadline deadline) override {
    TRY(faults_->pass("rename", from));
    TRY(below_->rename(from, to, deadline));
    return faults_->pass("renamed", to);
  }
  Result<void> remove(std::string_view path, Deadline deadline) override {
    TRY(faults_->pass("remove", path));
    return below_->remove(path, deadline);
  }
  Result<std::uint64_t> make_directory(std::string_view path, std::uint32_t mode,
                                       Deadline deadline) override {
    TRY(faults_->pass("make_directory", path));
    return below_->make_directory(path, mode, deadline);
  }
  Result<void> remove_directory(std::string_view path, Deadline deadline) override {
    TRY(faults_->pass("remove_directory", path));
    return below_->remove_directory(path, deadline);
  }
  Result<void> list(std::string_view path, const std::function<bool(const PoolEntry&)>& visit,
                    Deadline deadline) override {
    TRY(faults_->pass("list", path));
    return below_->list(path, visit, deadline);
  }
  Result<void> list_statuses(
      std::string_view path,
      const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit,
      Deadline deadline) override {
    TRY(faults_->pass("list", path));
    return below_->list_statuses(path, visit, deadline);
  }

 private:
  const std::shared_ptr<const PoolFaults> faults_;
};

}  // namespace kvcachefs::testing
