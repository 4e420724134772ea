#include "fs/life/reaper.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "backend/base/log.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

// Unlinks of a burst come together in one batch, with one sync.
constexpr std::chrono::milliseconds kGather{50};
// Few: the room that they make is waited for.
constexpr std::size_t kEvictedBatch = 64;

struct Doomed {
  ObjectId object;
  std::uint32_t device;
  InodeNumber inode;  // 0: it was replaced by a rewrite
};

std::vector<InodeNumber> take(std::deque<InodeNumber>& queue, std::size_t most) {
  const auto end = queue.begin() + static_cast<std::ptrdiff_t>(std::min(most, queue.size()));
  std::vector<InodeNumber> taken(queue.begin(), end);
  queue.erase(queue.begin(), end);
  return taken;
}

}  // namespace

void Reaper::start() {
  thread_ = std::thread([this] { run(); });
  evicted_thread_ = std::thread([this] { run_evicted(); });
}

void Reaper::add_inode(InodeNumber number, bool evicted) {
  const std::lock_guard lock(mutex_);
  if (inodes_.size() + evicted_.size() >= kMostQueued) {
    overflowed_ = true;
    return;
  }
  if (evicted) {
    evicted_.push_back(number);
    if (evicted_.size() == 1) evicted_changed_.notify_one();
    return;
  }
  inodes_.push_back(number);
  if (inodes_.size() == 1) changed_.notify_one();
}

void Reaper::add_object() {
  const std::lock_guard lock(mutex_);
  objects_ = true;
  changed_.notify_one();
}

void Reaper::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
    evicted_changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  if (evicted_thread_.joinable()) evicted_thread_.join();
}

void Reaper::run_evicted() {
  std::unique_lock lock(mutex_);
  while (true) {
    evicted_changed_.wait(lock, [this] { return stopping_ || !evicted_.empty(); });
    if (evicted_.empty()) return;
    const std::vector<InodeNumber> numbers = take(evicted_, kEvictedBatch);
    lock.unlock();
    if (const Result<void> reaped = reap_inodes(numbers, false); !reaped.ok())
      log_warn("reaping failed errno={} step=\"{}\"", reaped.error().code, reaped.error().what);
    lock.lock();
  }
}

void Reaper::run() {
  if (strays_) {
    if (const Result<void> removed = remove_strays(); !removed.ok()) {
      log_warn("collection of stray backing files failed errno={}", removed.error().code);
    }
  }
  if (const Result<void> collected = collect_last_runs(); !collected.ok()) {
    log_warn("collection of the last run's orphans failed errno={}: the next start tries again",
             collected.error().code);
  }
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || objects_ || !inodes_.empty(); });
    if (inodes_.empty() && !objects_) return;
    if (!stopping_)
      changed_.wait_for(lock, kGather,
                        [this] { return stopping_ || inodes_.size() >= kBatch; });
    const std::vector<InodeNumber> numbers = take(inodes_, kBatch);
    const bool objects = std::exchange(objects_, false);
    if (inodes_.empty() && std::exchange(overflowed_, false)) {
      log_warn("reaper queue overflowed: the rest of the orphans goes at the next start");
    }
    lock.unlock();
    const Result<void> reaped = reap_inodes(numbers, true);
    if (!reaped.ok())
      log_warn("reaping failed errno={} step=\"{}\"", reaped.error().code, reaped.error().what);
    bool more = objects;
    while (more) {
      const Result<bool> done = reap_objects();
      if (!done.ok())
        log_warn("reaping failed errno={} step=\"{}\"", done.error().code, done.error().what);
      more = done.ok() && *done;
    }
    lock.lock();
  }
}

Result<void> Reaper::reap_inodes(const std::vector<InodeNumber>& numbers, bool durably) {
  std::vector<InodeNumber> mine;
  {
    const std::lock_guard lock(mutex_);
    for (const InodeNumber number : numbers) {
      const auto [at, is_free] = in_hand_.try_emplace(number, false);
      if (is_free) mine.push_back(number);
      // Who has it may have found it in use, and passed it over.
      if (!is_free) at->second = true;
    }
  }
  Result<void> reaped = reap_claimed(mine, durably);
  std::vector<InodeNumber> again;
  {
    const std::lock_guard lock(mutex_);
    for (const InodeNumber number : mine) {
      const auto at = in_hand_.find(number);
      if (at->second) again.push_back(number);
      in_hand_.erase(at);
    }
  }
  for (const InodeNumber number : again) add_inode(number, !durably);
  return reaped;
}

Result<void> Reaper::reap_claimed(const std::vector<InodeNumber>& numbers, bool durably) {
  if (numbers.empty()) return {};
  std::vector<Doomed> doomed;
  std::vector<InodeNumber> files;
  Edit edit;
  edit.set_frees();
  for (const InodeNumber number : numbers) {
    // It came back: an unlinked file that was open was given a name again (linkat of a
    // descriptor).
    if (core_.table.find(number) != nullptr) continue;
    const std::optional<InodeRecord> record = TRY(core_.catalog.find_inode(number));
    if (!record || record->nlink > 0) {
      edit.remove_orphan_inode(number);
      continue;
    }
    for (const ObjectId object : {record->object, record->previous_object}) {
      if (object == kNoObject) continue;
      const Result<std::uint32_t> device = core_.devices->index_of(object);
      if (device.ok())
        doomed.push_back({object, *device, object == record->object ? number : 0});
      edit.remove_object(object, device.ok() ? *device : kNoDevice);
    }
    if (const auto copy = TRY(core_.catalog.find_pool_copy(number)))
      edit.remove_pool_copy(number, *copy);
    if ((record->flags & kInodeHasXattr) != 0) {
      const std::vector<std::string> names = TRY(core_.catalog.list_xattrs(number));
      for (const std::string& name : names) edit.remove_xattr(number, name);
    }
    // Recovery took those of the last run from the table, and does not count them.
    if (is_unsealed(record->state) && TRY(core_.catalog.is_listed_unsealed(number))) {
      edit.remove_unsealed(number);
      count_unsealed(core_, record->state, DataState::kNone);
    }
    if (S_ISREG(record->mode)) files.push_back(number);
    edit.remove_inode(number);
    edit.remove_orphan_inode(number);
  }
  // Before the orphans' records, which say what is left.
  TRY(core_.knowledge.remove_rows_left(files));
  if (durably && !doomed.empty()) TRY(core_.catalog.sync());
  for (const Doomed& copy : doomed) {
    const Result<void> removed = core_.devices->at(copy.device).remove(copy.object);
    if (removed.ok()) {
      core_.budget.usage().reaped(copy.inode, copy.object);
    } else {
      edit.put_orphan_object(copy.object, copy.device);  // again at the next start
      log_warn("unlink of a backing file failed object={} errno={}", copy.object,
               removed.error().code);
    }
  }
  if (edit.empty()) return {};
  return core_.catalog.commit(std::move(edit));
}

Result<bool> Reaper::reap_objects() {
  const std::vector<OrphanObject> orphans = TRY(core_.catalog.list_orphan_objects(0, kBatch));
  if (orphans.empty()) return false;
  TRY(core_.catalog.sync());
  Edit edit;
  edit.set_frees();
  for (const OrphanObject& orphan : orphans) {
    if (!core_.devices->has(orphan.device)) {
      log_error("orphan object={} is on no device: its record is damaged", orphan.id);
      edit.remove_orphan_object(orphan.id);
      continue;
    }
    const Result<void> removed = core_.devices->at(orphan.device).remove(orphan.id);
    if (removed.ok()) {
      core_.budget.usage().reaped_object(orphan.id);
      edit.remove_orphan_object(orphan.id);
    } else {
      log_warn("unlink of a backing file failed object={} errno={}", orphan.id,
               removed.error().code);
    }
  }
  if (edit.empty()) return false;
  TRY(core_.catalog.commit(std::move(edit)));
  return orphans.size() == kBatch;
}

// A stray's id is one of the last that the crashed run gave out; this run's ids are beyond
// them.
Result<void> Reaper::remove_strays() {
  const auto [first, last] = core_.catalog.last_run_ids();
  for (const auto& tier : core_.devices->tiers()) {
    for (ObjectId id = first; id < last; ++id) {
      if (!tier->status(id).ok()) continue;
      if (TRY(core_.catalog.find_object(id))) continue;
      // An unlinked file that is still to be reaped has an orphan record instead.
      TRY(tier->remove(id));
      log_info("stray backing file removed object={}", id);
    }
  }
  return {};
}

bool Reaper::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

// An inode below the end is of the last run, or is in the table while anybody of this run uses it.
// Some of them before a stop that comes at once.
Result<void> Reaper::collect_last_runs() {
  if (last_runs_end_ == 0) return {};
  InodeNumber after = 0;
  do {
    std::vector<InodeNumber> numbers = TRY(core_.catalog.list_orphan_inodes(after, kBatch));
    if (numbers.empty()) break;
    after = numbers.back();
    numbers.erase(std::lower_bound(numbers.begin(), numbers.end(), last_runs_end_),
                  numbers.end());
    TRY(reap_inodes(numbers, true));
  } while (!stopping());
  while (TRY(reap_objects())) {
    if (stopping()) break;
  }
  return {};
}

}  // namespace kvcachefs
