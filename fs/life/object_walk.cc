#include "fs/life/object_walk.h"

#include <vector>

#include "backend/base/log.h"
#include "fs/life/drop.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

// Rows at a time: an iterator over all of them would hold back the database's cleaning.
constexpr std::size_t kBatch = 4096;
// Between two walks: whoever tells a thousand directories something causes few.
constexpr std::chrono::seconds kPause{1};

// The machine's crash has brought back the name of what was evicted. The caller holds the inode's lock.
bool is_evicted(Core& core, Inode& inode) {
  if (inode.record.object >= core.cut_before) return false;
  const Result<Tier*> tier = core.devices->of(inode);
  if (!tier.ok()) return false;
  const Result<struct stat> backing = (*tier)->status(inode.record.object);
  return !backing.ok() && backing.error().code == ENOENT;
}

}  // namespace

void ObjectWalk::start() {
  core_.catalog.object_count().begin(core_.catalog.coming_id());
  core_.budget.usage().begin_walk(core_.catalog.coming_id());
  if (const Result<void> taken = take_unsealed(); !taken.ok())
    log_warn("unsealed files not counted errno={}", taken.error().code);
  thread_ = std::thread([this] { run(); });
}

void ObjectWalk::again() {
  const std::lock_guard lock(mutex_);
  again_ = true;
  changed_.notify_one();
}

void ObjectWalk::stop() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

Result<void> ObjectWalk::take_unsealed() {
  InodeNumber after = 0;
  while (true) {
    const std::vector<InodeNumber> numbers = TRY(core_.catalog.list_unsealed(after, kBatch));
    if (numbers.empty()) return {};
    after = numbers.back();
    for (const InodeNumber number : numbers) {
      const Result<InodePtr> inode = core_.table.get(number);
      if (!inode.ok()) continue;
      struct stat backing {};
      {
        const std::lock_guard lock((*inode)->mutex);
        const Result<Tier*> tier = core_.devices->of(**inode);
        if (!tier.ok()) continue;
        const Result<struct stat> status = (*tier)->status((*inode)->record.object);
        if (!status.ok()) continue;
        backing = *status;
        core_.budget.made(**inode);
        core_.budget.measured(number, backing);
      }
      if (!core_.knowledge.is_block(number))
        core_.budget.known(number, to_nanos(backing.st_mtim), (*inode)->tenant.load());
    }
  }
}

void ObjectWalk::count(const ObjectPlace& place) {
  const Result<InodePtr> found = core_.table.get(place.inode);
  if (!found.ok()) return;
  const InodePtr& inode = *found;
  // Its names may change just now: what was known holds.
  static_cast<void>(note_policy(core_, *inode).ok());
  if (passes_ > 0) return;
  DataStamp stamp;
  bool is_there = false;
  {
    const std::lock_guard lock(inode->mutex);
    const InodeRecord& record = inode->record;
    if (record.object != place.id || record.state != DataState::kSealed || record.nlink == 0)
      return;
    stamp = record.stamp;
    const auto copy = core_.budget.sealed_copy(*inode, record);
    is_there = copy.has_value();
    if (copy) core_.budget.usage().walked(*copy);
    if (!is_there && !is_evicted(core_, *inode)) return;
  }
  if (!is_there) {
    if (const Result<void> dropped = drop_names(core_, place.inode, DropReason::kIncomplete);
        !dropped.ok())
      log_warn("drop failed inode={} errno={}", place.inode, dropped.error().code);
    return;
  }
  if (core_.knowledge.is_block(place.inode)) return;
  core_.budget.known(place.inode, stamp.mtime, inode->tenant.load());
}

void ObjectWalk::run() {
  while (true) {
    if (const Result<void> walked = pass(); !walked.ok())
      log_warn("objects not counted errno={}", walked.error().code);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPause, [this] { return ending_.load(); });
    changed_.wait(lock, [this] { return again_ || ending_; });
    if (ending_) return;
    again_ = false;
    ++passes_;
  }
}

Result<void> ObjectWalk::pass() {
  ObjectCount& objects = core_.catalog.object_count();
  ObjectId last = kNoObject;
  while (!ending_) {
    const std::vector<ObjectPlace> found = TRY(core_.catalog.list_objects(last, kBatch));
    for (const ObjectPlace& place : found) {
      if (ending_) return {};
      count(place);
    }
    if (!found.empty()) last = found.back().id;
    if (passes_ == 0 && !found.empty()) {
      objects.passed(last, found);
      core_.budget.usage().passed(last);
    }
    if (found.size() == kBatch) continue;
    if (passes_ == 0) {
      objects.passed_all();
      core_.budget.usage().end_walk();
      core_.budget.files().restored();
      if (core_.on_counted) core_.on_counted();
    }
    return {};
  }
  return {};
}

}  // namespace kvcachefs
