#include "fs/pool/owner_refresh.h"

#include <pthread.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "backend/base/log.h"
#include "backend/base/priority.h"
#include "backend/pool/pool_directory.h"
#include "backend/pool/pool_transfer.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/told_words.h"

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

struct OwnerRefresh::Said {
  bool is_gone = false;  // a directory
  std::optional<PoolSums> sums = std::nullopt;
  std::optional<PoolTold> told = std::nullopt;
};

Result<OwnerRefresh::Said> OwnerRefresh::ask(const Inode& inode, const std::string& path,
                                             const PoolCopy& copy) {
  const PoolStatus file{
      .kind = PoolKind::kFile, .fileid = copy.fileid, .size = copy.size, .mtime = copy.mtime};
  return service_.client().call<Said>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [path, file, is_file = inode.is_file()](PoolSession& session,
                                              Deadline deadline) -> Result<Said> {
        if (is_file) return Said{.sums = TRY(find_sums(session, file, deadline))};
        const Result<PoolStatus> status = session.status(path, deadline);
        const bool is_missing =
            !status.ok() && (status.error().code == ENOENT || status.error().code == ENOTDIR);
        if (!status.ok() && !is_missing) return status.error();
        if (is_missing || status->kind != PoolKind::kDirectory || status->fileid != file.fileid)
          return Said{.is_gone = true};
        return Said{.sums = TRY(find_directory_owner(session, path, *status, deadline)),
                    .told = TRY(find_told(session, path, *status, deadline))};
      });
}

Result<bool> OwnerRefresh::refresh(Inode& inode) {
  const Owner asked = owner_of(inode);
  const std::vector<PoolWord> asked_words = TRY(all_told(core_, inode));
  const auto copy = TRY(core_.catalog.find_pool_copy(inode.number));
  const auto shared = TRY(shared_name_of(core_.catalog, core_.knowledge, inode.number));
  if (!copy || copy->fileid == 0 || !shared || shared->path_hash != copy->path_hash)
    return true;
  const Result<Said> said = ask(inode, shared->path, *copy);
  // A record that is damaged says nothing.
  if (!said.ok() && said.error().code == EILSEQ) return true;
  if (!said.ok()) return said.error();
  if (said->is_gone) on_gone_(inode, *copy);
  if (said->sums) {
    const Result<void> taken = take_owner(core_, inode, asked, *shared, *said->sums);
    if (!taken.ok() && taken.error().code == EAGAIN) return false;
    TRY(taken);
  }
  // After the owner: what he may tell is another's to tell no more.
  if (said->is_gone) return true;
  const Result<void> taken =
      take_told(core_, inode, *shared, copy->fileid, asked_words, said->told);
  if (!taken.ok() && taken.error().code == EAGAIN) return false;
  TRY(taken);
  return true;
}

}  // namespace kvcachefs
