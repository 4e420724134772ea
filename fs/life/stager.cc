#include "fs/life/stager.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/memory.h"

namespace kvcachefs {
namespace {

// How often a thread looks whether opens are still being verified; and after memory and what is unused.
constexpr std::chrono::milliseconds kStageYield{2};
constexpr std::chrono::seconds kLook{1};
// Of the memory that is available.
constexpr std::uint64_t kShareOfMemory = 4;

}  // namespace

Stager::Stager(Core& core, Verifier& verifier, std::uint64_t most_bytes)
    : core_(core), verifier_(verifier), most_bytes_(most_bytes), room_(most_bytes) {}

void Stager::start() {
  if (most_bytes_ == 0) return;
  look_at_memory();
  const std::lock_guard lock(mutex_);
  running_ = true;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads_.emplace_back([this] { run(); });
    pthread_setname_np(threads_.back().native_handle(), "kv-stage");
  }
}

void Stager::stop() {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
    waiting_.clear();
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Stager::is_read_directly(const Inode& inode) const {
  const std::int64_t last =
      direct_at_[inode.series.load(std::memory_order_relaxed)].load(std::memory_order_relaxed);
  return last != 0 && monotonic_now() - last < kDirectHolds;
}

void Stager::found(Inode& inode, std::uint64_t size) {
  if (size == 0 || size > std::min(most_bytes_, Verifier::kMostAtOpen)) return;
  const std::int64_t now = monotonic_now();
  if (is_read_directly(inode)) return;
  const std::int64_t before = inode.hinted_at.load(std::memory_order_relaxed);
  if (before != 0 && now - before < kSameHint) return;
  const std::lock_guard lock(mutex_);
  if (!running_ || waiting_.size() >= kMostWaiting) return;
  inode.hinted_at.store(now, std::memory_order_relaxed);
  waiting_.push_back({.inode = inode.number, .size = size, .since = now});
  changed_.notify_one();
}

void Stager::opened(Inode& inode, int flags) {
  if ((flags & O_DIRECT) != 0) {
    direct_at_[inode.series.load(std::memory_order_relaxed)].store(monotonic_now(),
                                                                   std::memory_order_relaxed);
  }
  if (!inode.staged.exchange(false, std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (!staged_.take(inode.record.object)) return;
  ++counts_.loaded;
  changed_.notify_one();
}

// One file always: else a large one would wait for ever.
bool Stager::has_room() const {
  return staged_.size() == 0 || staged_.bytes() + waiting_.front().size <= room_;
}

std::optional<Stager::Hint> Stager::wait_for_hint() {
  std::unique_lock lock(mutex_);
  while (running_) {
    const std::int64_t now = monotonic_now();
    const bool has_something = !waiting_.empty() || staged_.size() > 0;
    if (has_something && Clock::now() >= looked_ + kLook) {
      looked_ = Clock::now();
      lock.unlock();
      look_at_memory();
      drop_unused();
      lock.lock();
      continue;
    }
    const std::int64_t oldest = now - core_.options.budget.lease.count();
    while (!waiting_.empty() && waiting_.front().since < oldest) waiting_.pop_front();
    const bool must_yield = reading_ > 0 && verifier_.is_busy();
    if (!waiting_.empty() && !must_yield && has_room()) {
      const Hint next = waiting_.front();
      waiting_.pop_front();
      ++reading_;
      return next;
    }
    if (!has_something) {
      changed_.wait(lock);
    } else if (!waiting_.empty() && must_yield) {
      changed_.wait_for(lock, kStageYield);
    } else {
      changed_.wait_for(lock, kLook);
    }
  }
  return std::nullopt;
}

void Stager::run() {
  while (const std::optional<Hint> hint = wait_for_hint()) {
    const Clock::time_point began = Clock::now();
    stage(*hint);
    std::unique_lock lock(mutex_);
    if (verifier_.is_busy())
      changed_.wait_for(lock, Clock::now() - began, [this] { return !running_; });
    --reading_;
  }
}

void Stager::stage(const Hint& hint) {
  const InodePtr inode = core_.table.find(hint.inode);
  // What the kernel has forgotten nobody loads.
  if (inode == nullptr || is_read_directly(*inode)) return;
  ObjectId object = kNoObject;
  {
    const std::lock_guard lock(inode->mutex);
    // Of a lost device every file would be damaged.
    if (!inode->device || core_.devices->state(*inode->device) == DeviceState::kLost ||
        core_.devices->silent(*inode->device) > 0)
      return;
    object = inode->record.object;
  }
  {
    // Before it is read: an open may come meanwhile.
    const std::lock_guard lock(mutex_);
    if (!staged_.add({.inode = hint.inode,
                      .object = object,
                      .bytes = hint.size,
                      .since = monotonic_now()}))
      return;
    inode->staged.store(true, std::memory_order_relaxed);
  }
  const Result<bool> read = verifier_.stage(inode, object);
  const std::lock_guard lock(mutex_);
  if (read.ok() && *read) {
    ++counts_.files;
    counts_.bytes += hint.size;
    return;
  }
  inode->staged.store(false, std::memory_order_relaxed);
  static_cast<void>(staged_.take(object));
  // Damage has been told by who found it.
  if (!read.ok() && read.error().code != ESTALE) {
    log_debug("stage inode={} event=not_read errno={} step=\"{}\"", hint.inode,
              read.error().code, read.error().what);
  }
}

void Stager::drop_unused() {
  const std::int64_t lease = core_.options.budget.lease.count();
  while (true) {
    std::optional<StagedFile> unused;
    {
      const std::lock_guard lock(mutex_);
      if (!running_) return;
      unused = staged_.take_older_than(monotonic_now() - lease);
      if (!unused) return;
      ++counts_.unused;
      changed_.notify_all();
    }
    drop(*unused);
  }
}

// Pages that somebody has mapped or written stay: the kernel sees to that.
void Stager::drop(const StagedFile& file) {
  if (const InodePtr inode = core_.table.find(file.inode); inode != nullptr)
    inode->staged.store(false, std::memory_order_relaxed);
  const Result<std::optional<ObjectRecord>> record = core_.catalog.find_object(file.object);
  if (!record.ok() || !*record || !core_.devices->has((*record)->device)) return;
  const Result<UniqueFd> fd = core_.devices->at((*record)->device).open(file.object, kOwnRead);
  if (fd.ok()) ::posix_fadvise(fd->get(), 0, 0, POSIX_FADV_DONTNEED);
}

void Stager::look_at_memory() {
  const std::optional<std::uint64_t> available = available_memory();
  const std::lock_guard lock(mutex_);
  room_ = available ? std::min(most_bytes_, *available / kShareOfMemory) : most_bytes_;
}

StageCounts Stager::counts() const {
  const std::lock_guard lock(mutex_);
  StageCounts out = counts_;
  out.held_bytes = staged_.bytes();
  return out;
}

}  // namespace kvcachefs
