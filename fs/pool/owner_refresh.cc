#include "fs/pool/owner_refresh.h"

#include <pthread.h>

#include <utility>

#include "backend/base/log.h"
#include "backend/base/priority.h"
#include "backend/pool/pool_transfer.h"
#include "fs/pool/owner_changes.h"

namespace kvcachefs {

using SteadyClock = std::chrono::steady_clock;

void OwnerRefresh::start() {
  const std::lock_guard lock(mutex_);
  running_ = true;
  thread_ = std::thread([this] { run(); });
}

void OwnerRefresh::stop() {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

bool OwnerRefresh::want(InodeNumber inode) {
  const std::lock_guard lock(mutex_);
  if (!running_ || order_.size() >= kMostWaiting) return false;
  if (waiting_.insert(inode).second) order_.push_back(inode);
  changed_.notify_one();
  return true;
}

void OwnerRefresh::run() {
  pthread_setname_np(pthread_self(), "kv-owners");
  yield_cpus();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !running_ || !order_.empty(); });
    if (!running_) return;
    const InodeNumber number = order_.front();
    order_.pop_front();
    waiting_.erase(number);
    lock.unlock();
    const Result<InodePtr> inode = core_.table.get(number);
    Result<bool> done = !inode.ok();
    for (int tries = 0; tries < kMostTries && done.ok() && !*done; ++tries)
      done = refresh(**inode);
    // Whoever looks it up next asks again.
    if (!done.ok() || !*done) (*inode)->pool_checked.store(0);
    lock.lock();
  }
}

Result<bool> OwnerRefresh::refresh(Inode& inode) {
  const Owner asked = owner_of(inode);
  const auto copy = TRY(core_.catalog.find_pool_copy(inode.number));
  const auto shared = TRY(shared_name_of(core_.catalog, core_.knowledge, inode.number));
  if (!copy || !shared || shared->path_hash != copy->path_hash) return true;
  const PoolStatus status{.kind = inode.is_file() ? PoolKind::kFile : PoolKind::kDirectory,
                          .fileid = copy->fileid,
                          .size = copy->size,
                          .mtime = copy->mtime};
  Result<std::optional<PoolSums>> said = service_.client().call<std::optional<PoolSums>>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [path = shared->path, status](PoolSession& session, Deadline deadline) {
        return status.kind == PoolKind::kFile
                   ? find_sums(session, status, deadline)
                   : find_directory_owner(session, path, status, deadline);
      });
  // A record that is damaged says nothing.
  if (!said.ok() && said.error().code == EILSEQ) return true;
  if (!said.ok()) return said.error();
  if (!*said) return true;
  const Result<void> taken = take_owner(core_, inode, asked, *shared, **said);
  if (!taken.ok() && taken.error().code == EAGAIN) return false;
  TRY(taken);
  return true;
}

}  // namespace kvcachefs
