#include "fs/life/reaper.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <vector>

#include "backend/base/log.h"
#include "fs/life/is_mapped.h"
#include "fs/life/recover.h"
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

// What goes with an inode.
struct Orphan {
  InodeNumber number = 0;
  InodeRecord record;
  std::vector<Doomed> copies;
  std::vector<ObjectId> without_copy;
  std::optional<PoolCopy> pool_copy;
  std::vector<std::string> xattrs;
  bool is_listed_unsealed = false;
};

// nullopt: it has gone, or has a name again. Whatever is asked is answered before anything of it goes.
Result<std::optional<Orphan>> read_orphan(Core& core, InodeNumber number) {
  const std::optional<InodeRecord> record = TRY(core.catalog.find_inode(number));
  if (!record || record->nlink > 0) return std::optional<Orphan>{};
  Orphan orphan;
  orphan.number = number;
  orphan.record = *record;
  for (const ObjectId object : {record->object, record->previous_object}) {
    if (object == kNoObject) continue;
    const Result<std::uint32_t> device = core.devices->index_of(object);
    if (device.ok()) {
      orphan.copies.push_back({object, *device, object == record->object ? number : 0});
    } else if (device.error().code == ENOENT) {
      orphan.without_copy.push_back(object);
    } else {
      return device.error();
    }
  }
  orphan.pool_copy = TRY(core.catalog.find_pool_copy(number));
  if ((record->flags & kInodeHasXattr) != 0)
    orphan.xattrs = TRY(core.catalog.list_xattrs(number));
  // Recovery took those of the last run from the table, and does not count them.
  orphan.is_listed_unsealed =
      is_unsealed(record->state) && TRY(core.catalog.is_listed_unsealed(number));
  return std::optional<Orphan>{std::move(orphan)};
}

void put_removal(const Orphan& orphan, Edit& edit) {
  for (const Doomed& copy : orphan.copies) edit.remove_object(copy.object, copy.device);
  for (const ObjectId object : orphan.without_copy) edit.remove_object(object, kNoDevice);
  if (orphan.pool_copy) edit.remove_pool_copy(orphan.number, *orphan.pool_copy);
  for (const std::string& name : orphan.xattrs) edit.remove_xattr(orphan.number, name);
  if (orphan.is_listed_unsealed) edit.remove_unsealed(orphan.number);
  edit.remove_inode(orphan.number);
  edit.remove_orphan_inode(orphan.number);
}

std::vector<InodeNumber> take(std::deque<InodeNumber>& queue, std::size_t most) {
  const auto end = queue.begin() + static_cast<std::ptrdiff_t>(std::min(most, queue.size()));
  std::vector<InodeNumber> taken(queue.begin(), end);
  queue.erase(queue.begin(), end);
  return taken;
}

}  // namespace

void Reaper::start() {
  if (core_.cut.before != 0) strays_thread_ = std::thread([this] { run_old_strays(); });
  thread_ = std::thread([this] { run(); });
  evicted_thread_ = std::thread([this] { run_evicted(); });
}

void Reaper::add_inode(InodeNumber number, bool evicted) {
  {
    const std::lock_guard lock(mutex_);
    if (inodes_.size() + evicted_.size() < kMostQueued) {
      std::deque<InodeNumber>& queue = evicted ? evicted_ : inodes_;
      queue.push_back(number);
      if (queue.size() == 1) (evicted ? evicted_changed_ : changed_).notify_one();
      return;
    }
  }
  leave_to_walk();
}

void Reaper::leave_to_walk(Clock::duration longest_pause) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point at = Clock::now() + std::min(pause_, longest_pause);
  if (left_ && walk_at_ <= at) return;
  left_ = true;
  walk_at_ = at;
  changed_.notify_one();
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
  if (strays_thread_.joinable()) strays_thread_.join();
}

void Reaper::run_evicted() {
  std::unique_lock lock(mutex_);
  while (true) {
    evicted_changed_.wait(lock, [this] { return stopping_ || !evicted_.empty(); });
    if (evicted_.empty()) return;
    const std::vector<InodeNumber> numbers = take(evicted_, kEvictedBatch);
    lock.unlock();
    reap_inodes(numbers, false);
    lock.lock();
  }
}

void Reaper::run() {
  const auto is_queued = [this] { return stopping_ || objects_ || !inodes_.empty(); };
  std::unique_lock lock(mutex_);
  while (true) {
    while (!is_queued() && !(left_ && Clock::now() >= walk_at_))
      left_ ? static_cast<void>(changed_.wait_until(lock, walk_at_)) : changed_.wait(lock);
    if (left_ && Clock::now() >= walk_at_) {
      left_ = false;
      lock.unlock();
      if (const Result<void> walked = walk(); !walked.ok()) {
        log_warn("reaping failed errno={} step=\"{}\"", walked.error().code,
                 walked.error().what);
        leave_to_walk();
      }
      lock.lock();
      pause_ = left_ ? std::min<Clock::duration>(2 * pause_, kLongestPause)
                     : Clock::duration{kFirstPause};
    }
    if (inodes_.empty() && !objects_) {
      if (stopping_) return;
      continue;
    }
    if (!stopping_)
      changed_.wait_for(lock, kGather,
                        [this] { return stopping_ || inodes_.size() >= kBatch; });
    lock.unlock();
    reap_queued();
    lock.lock();
  }
}

void Reaper::reap_queued() {
  std::vector<InodeNumber> numbers;
  bool objects = false;
  {
    const std::lock_guard lock(mutex_);
    numbers = take(inodes_, kBatch);
    objects = std::exchange(objects_, false);
  }
  reap_inodes(numbers, true);
  if (!objects) return;
  if (const Result<void> reaped = reap_objects(); !reaped.ok()) {
    log_warn("reaping failed errno={} step=\"{}\"", reaped.error().code, reaped.error().what);
    leave_to_walk();
  }
}

void Reaper::reap_inodes(const std::vector<InodeNumber>& numbers, bool durably) {
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
  if (const Result<void> reaped = reap_claimed(mine, durably); !reaped.ok()) {
    log_warn("reaping failed errno={} step=\"{}\"", reaped.error().code, reaped.error().what);
    leave_to_walk();
  }
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
}

Result<void> Reaper::reap_claimed(const std::vector<InodeNumber>& numbers, bool durably) {
  if (numbers.empty()) return {};
  std::vector<Orphan> orphans;
  std::vector<InodeNumber> files;
  Edit edit;
  edit.set_frees();
  for (const InodeNumber number : numbers) {
    // It came back: an unlinked file that was open was given a name again (linkat of a
    // descriptor).
    if (core_.table.find(number) != nullptr) continue;
    Result<std::optional<Orphan>> orphan = read_orphan(core_, number);
    if (!orphan.ok()) {
      // The others do not wait for it.
      log_warn("reaping failed inode={} errno={} step=\"{}\"", number, orphan.error().code,
               orphan.error().what);
      leave_to_walk();
      continue;
    }
    if (!*orphan) {
      edit.remove_orphan_inode(number);
      continue;
    }
    if (S_ISREG((*orphan)->record.mode)) files.push_back(number);
    put_removal(**orphan, edit);
    orphans.push_back(std::move(**orphan));
  }
  // Before the orphans' records, which say what is left.
  TRY(core_.knowledge.remove_rows_left(files));
  const bool any_copy = std::any_of(orphans.begin(), orphans.end(), [](const Orphan& orphan) {
    return !orphan.copies.empty();
  });
  if (durably && any_copy) TRY(core_.catalog.sync());
  for (const Orphan& orphan : orphans) {
    for (const Doomed& copy : orphan.copies) {
      // A rewrite has replaced it, and somebody may have it mapped still. An inode that is
      // mapped does not come here: the kernel has it until then.
      const bool stays = copy.inode == 0 && may_be_mapped(copy.device, copy.object);
      if (!stays && remove_copy(copy.device, copy.object)) {
        core_.budget.usage().reaped(copy.inode, copy.object);
        continue;
      }
      // It is an object without an inode from here on.
      edit.put_orphan_object(copy.object, copy.device);
      core_.budget.usage().live_nameless(copy.inode, copy.object);
      leave_to_walk();
    }
  }
  if (edit.empty()) return {};
  TRY(core_.catalog.commit(std::move(edit)));
  for (const Orphan& orphan : orphans) {
    if (orphan.is_listed_unsealed) count_unsealed(core_, orphan.record.state, DataState::kNone);
  }
  return {};
}

bool Reaper::may_be_mapped(std::uint32_t device, ObjectId object) {
  const Result<bool> used = is_used(core_, device, object);
  if (!used.ok()) {
    leave_to_walk(kFirstPause);
    return true;
  }
  if (*used) core_.budget.usage().mapped(object);
  return *used;
}

// False: it is left to the walk.
bool Reaper::remove_copy(std::uint32_t device, ObjectId object) {
  const Result<void> removed = core_.devices->remove_copy(device, object);
  // Of a disk that takes no writes it is said once, by who watches that.
  if (!removed.ok() && removed.error().code != ETIMEDOUT)
    log_warn("unlink of a backing file failed object={} errno={}", object,
             removed.error().code);
  return removed.ok();
}

Result<void> Reaper::reap_objects() {
  ObjectId last = kNoObject;
  do {
    const std::vector<OrphanObject> orphans =
        TRY(core_.catalog.list_orphan_objects(last, kBatch));
    if (orphans.empty()) return {};
    last = orphans.back().id;
    TRY(core_.catalog.sync());
    Edit edit;
    edit.set_frees();
    for (const OrphanObject& orphan : orphans) {
      if (!core_.devices->has(orphan.device)) {
        log_error("orphan object={} is on no device: its record is damaged", orphan.id);
        edit.remove_orphan_object(orphan.id);
        continue;
      }
      if (!may_be_mapped(orphan.device, orphan.id) && remove_copy(orphan.device, orphan.id)) {
        core_.budget.usage().reaped_object(orphan.id);
        edit.remove_orphan_object(orphan.id);
      } else {
        leave_to_walk();
      }
    }
    if (!edit.empty()) TRY(core_.catalog.commit(std::move(edit)));
  } while (!stopping());
  return {};
}

// A stray's id is one of the last that the crashed run gave out; this run's ids are beyond
// them.
Result<void> Reaper::remove_strays() {
  const auto [first, last] = core_.catalog.last_run_ids();
  Result<void> outcome;
  for (const auto& tier : core_.devices->tiers()) {
    for (ObjectId id = first; id < last; ++id) {
      if (!tier->status(id).ok()) continue;
      if (TRY(core_.catalog.find_object(id))) continue;
      // An unlinked file that is still to be reaped has an orphan record instead.
      const Result<void> removed = tier->remove(id);
      if (removed.ok()) log_info("stray backing file removed object={}", id);
      if (!removed.ok()) outcome = removed.error();
    }
  }
  return outcome;
}

// Of a run that ended with the machine: it had unlinked files and removed their records, and the disk kept the removal of the
// records alone. They may be of any age.
void Reaper::run_old_strays() {
  pthread_setname_np(pthread_self(), "kv-strays");
  std::uint64_t removed = 0;
  Result<void> outcome;
  for (const auto& tier : core_.devices->tiers()) {
    const auto visit = [&](ObjectId id) {
      if (stopping()) return false;
      if (id >= core_.cut.before) return true;
      const auto known = core_.catalog.find_object(id);
      if (!known.ok()) outcome = known.error();
      if (!known.ok() || *known) return known.ok();
      // One that is being reaped has gone already, or goes now.
      if (const Result<void> gone = tier->remove(id); !gone.ok()) outcome = gone;
      ++removed;
      return true;
    };
    const Result<void> walked = tier->each(visit, [](const std::string&) {});
    if (!walked.ok()) outcome = walked;
  }
  if (removed > 0) log_info("stray backing files removed after a power cut files={}", removed);
  if (!outcome.ok())
    log_warn("stray backing files may be left errno={} step=\"{}\"", outcome.error().code,
             outcome.error().what);
  if (outcome.ok() && !stopping()) has_looked_after_cut(core_);
}

bool Reaper::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

// Some of them before a stop that comes at once.
Result<void> Reaper::walk() {
  if (strays_) {
    if (const Result<void> removed = remove_strays(); removed.ok()) {
      strays_ = false;
    } else {
      log_warn("collection of stray backing files failed errno={}", removed.error().code);
      leave_to_walk();
    }
  }
  InodeNumber after = 0;
  do {
    std::vector<InodeNumber> numbers = TRY(core_.catalog.list_orphan_inodes(after, kBatch));
    if (numbers.empty()) break;
    after = numbers.back();
    // Who uses one tells of it when he lets go.
    numbers.erase(
        std::remove_if(numbers.begin(), numbers.end(),
                       [this](InodeNumber number) { return core_.table.holds(number); }),
        numbers.end());
    reap_inodes(numbers, true);
  } while (!stopping());
  return reap_objects();
}

}  // namespace kvcachefs
