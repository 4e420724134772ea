#include "fs/life/object_walk.h"

#include <pthread.h>

#include <algorithm>
#include <vector>

#include "backend/base/log.h"
#include "fs/life/checked_status.h"
#include "fs/life/find_tenants.h"
#include "fs/life/recover.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

// Rows at a time: an iterator over all of them would hold back the database's cleaning.
constexpr std::size_t kRowsAtOnce = 4096;
// Between two walks: whoever tells a thousand directories something causes few.
constexpr std::chrono::seconds kPause{1};
// Between two times at which the sums are written down: what a crash makes the next run miss.
constexpr std::chrono::seconds kWriteDown{10};
// Of what the last pass took, before the next one.
constexpr int kRest = 3;
constexpr std::chrono::minutes kLongestRest{5};

}  // namespace

Result<void> ObjectWalk::restore_metadata() {
  metadata_ = TRY(core_.catalog.metadata_bytes());
  core_.budget.metadata().restore(metadata_);
  return {};
}

Result<void> ObjectWalk::believe_last_run() {
  written_.resize(core_.devices->indices());
  std::vector<std::uint64_t> believed(written_.size());
  bool is_known = true;
  for (std::uint32_t device = 0; device < written_.size(); ++device) {
    const auto sealed = TRY(core_.catalog.sealed_bytes(device));
    written_[device] = sealed;
    believed[device] = sealed.value_or(0);
    is_known = is_known && (sealed || !core_.devices->has(device));
  }
  // Of a run that did not come so far nothing is known, but where it left nothing.
  is_known = is_known || TRY(core_.catalog.list_objects(kNoObject, 1)).empty();
  if (is_known) core_.budget.usage().believe(believed);
  return {};
}

void ObjectWalk::write_down() {
  Catalog::BytesByUser metadata;
  if (is_metadata_known_) metadata = core_.budget.metadata().list();
  if (metadata != metadata_) {
    if (core_.catalog.set_metadata_bytes(metadata).ok()) metadata_ = std::move(metadata);
  }
  for (std::uint32_t device = 0; device < written_.size(); ++device) {
    const UsageSums sums = core_.budget.usage().on(device);
    const std::uint64_t sealed = sums.sealed();
    if (!sums.complete || sealed == written_[device]) continue;
    if (const Result<void> put = core_.catalog.set_sealed_bytes(device, sealed); !put.ok()) {
      log_debug("sums not written errno={}: the next start counts without them",
                put.error().code);
      return;
    }
    written_[device] = sealed;
  }
}

// A second for a million inodes.
void ObjectWalk::recount_metadata() {
  MetadataBytes& metadata = core_.budget.metadata();
  metadata.begin_recount();
  const Result<void> walked = core_.catalog.each_inode(
      [&](InodeNumber, const InodeRecord& inode) {
        metadata.recount(inode);
        return !ending_;
      },
      [](const std::string&) {});
  if (!walked.ok())
    log_warn("metadata not counted errno={}: what was written down last holds",
             walked.error().code);
  const bool is_whole = walked.ok() && !ending_;
  metadata.end_recount(is_whole);
  is_metadata_known_ = is_whole;
}

void ObjectWalk::start(bool was_cut) {
  is_metadata_known_ = !was_cut && !metadata_.empty();
  core_.catalog.object_count().begin(core_.catalog.coming_id());
  core_.budget.usage().begin_walk(core_.catalog.coming_id());
  if (const Result<void> taken = take_unsealed(); !taken.ok())
    log_warn("unsealed files not counted errno={}", taken.error().code);
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "kv-count");
}

void ObjectWalk::again() {
  const std::lock_guard lock(mutex_);
  again_ = true;
  core_.is_recounting = true;
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
    const std::vector<InodeNumber> numbers =
        TRY(core_.catalog.list_unsealed(after, kRowsAtOnce));
    if (numbers.empty()) return {};
    after = numbers.back();
    for (const InodeNumber number : numbers) {
      const Result<InodePtr> inode = core_.table.get(number);
      if (!inode.ok()) continue;
      struct stat backing {};
      ObjectId object = kNoObject;
      {
        const std::lock_guard lock((*inode)->mutex);
        const Result<Tier*> tier = core_.devices->of(**inode);
        if (!tier.ok()) continue;
        const Result<struct stat> status = (*tier)->status((*inode)->record.object);
        if (!status.ok()) continue;
        backing = *status;
        object = (*inode)->record.object;
        core_.budget.made(**inode);
        core_.budget.measured(**inode, backing);
      }
      if (!core_.knowledge.is_block(number))
        core_.budget.known(number, to_nanos(backing.st_mtim), object, (*inode)->tenant.load());
    }
  }
}

void ObjectWalk::count(const ObjectPlace& place) {
  Usage& usage = core_.budget.usage();
  const Result<InodePtr> found = core_.table.get(place.inode);
  if (!found.ok()) {
    // Without a name: nobody seals it any more.
    if (passes_ == 0) usage.passed(place.id);
    return;
  }
  const InodePtr& inode = *found;
  bool is_block = false;
  // Its names may change just now: what was known holds.
  if (!note_policy(core_, *inode, passes_ == 0 ? &is_block : nullptr).ok())
    is_block = core_.knowledge.is_block(place.inode);
  if (passes_ > 0) return;
  // The machine's crash may have brought back the name of what was evicted, or lost the record of a change.
  if (place.id < core_.cut.before) judge(*inode);
  DataStamp stamp;
  {
    const std::lock_guard lock(inode->mutex);
    const InodeRecord& record = inode->record;
    if (record.object != place.id || record.state != DataState::kSealed || record.nlink == 0) {
      // Its seal counts it.
      usage.passed(place.id);
      return;
    }
    stamp = record.stamp;
    // Also what is lost: who finds that takes so much away.
    if (const auto copy = core_.budget.counted_copy(*inode, record)) usage.walked(*copy);
    usage.passed(place.id);
  }
  if (is_block) return;
  core_.budget.known(place.inode, stamp.mtime, place.id, inode->tenant.load());
}

void ObjectWalk::judge(Inode& inode) {
  const Result<struct stat> seen = checked_status(core_, inode);
  if (seen.ok() || seen.error().code == ENOENT) return;
  is_all_judged_ = false;
  log_warn("not judged after a crash inode={} errno={}", inode.number, seen.error().code);
}

void ObjectWalk::run() {
  using Clock = std::chrono::steady_clock;
  if (const Result<void> found = find_tenants(core_); !found.ok())
    log_warn("shares and quotas not read errno={}: they hold when somebody asks below them",
             found.error().code);
  if (!is_metadata_known_) recount_metadata();
  while (true) {
    const Clock::time_point begin = Clock::now();
    const Result<void> walked = pass();
    const Clock::duration took = Clock::now() - begin;
    if (!walked.ok())
      log_warn("objects not counted errno={}: tried again", walked.error().code);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPause, [this] { return ending_.load(); });
    if (!walked.ok() && !ending_) continue;
    if (!again_) core_.is_recounting = false;
    while (!changed_.wait_for(lock, kWriteDown, [this] { return again_ || ending_; })) {
      lock.unlock();
      write_down();
      lock.lock();
    }
    // A user who tells his directory something in a loop has a quarter of this thread walk, not
    // all of it.
    const auto rest = std::min<Clock::duration>(took * kRest, kLongestRest);
    if (passes_ > 0)
      changed_.wait_until(lock, begin + took + rest, [this] { return ending_.load(); });
    if (ending_) return;
    again_ = false;
    ++passes_;
  }
}

Result<void> ObjectWalk::order_remote() {
  InodeNumber after = 0;
  while (!ending_) {
    const std::vector<InodeNumber> numbers =
        TRY(core_.catalog.list_pool_copies(after, kRowsAtOnce));
    if (numbers.empty()) return {};
    after = numbers.back();
    for (const InodeNumber number : numbers) {
      if (ending_) return {};
      const auto record = core_.catalog.find_inode(number);
      if (!record.ok() || !*record || (*record)->state != DataState::kRemote) continue;
      const Result<InodePtr> inode = core_.table.get(number);
      if (!inode.ok() || core_.knowledge.is_block(number)) continue;
      static_cast<void>(note_policy(core_, **inode).ok());
      // Its stamp's ctime is when it was found there. Numbers of inodes and objects are given out together.
      core_.budget.known(number, (*record)->stamp.ctime, number, (*inode)->tenant.load());
    }
  }
  return {};
}

Result<void> ObjectWalk::pass() {
  ObjectCount& objects = core_.catalog.object_count();
  while (!ending_) {
    const std::vector<ObjectPlace> found = TRY(core_.catalog.list_objects(last_, kRowsAtOnce));
    for (const ObjectPlace& place : found) {
      if (ending_) return {};
      count(place);
    }
    if (!found.empty()) last_ = found.back().id;
    if (passes_ == 0 && !found.empty()) {
      objects.passed(last_, found);
      core_.budget.usage().passed(last_);
    }
    if (found.size() == kRowsAtOnce) continue;
    last_ = kNoObject;
    if (passes_ == 0) {
      objects.passed_all();
      core_.budget.usage().end_walk();
      if (const Result<void> ordered = order_remote(); !ordered.ok())
        log_warn("names of the pool not in order errno={}", ordered.error().code);
      core_.budget.files().restored();
      if (is_all_judged_) has_looked_after_cut(core_);
      if (core_.on_counted) core_.on_counted();
    }
    return {};
  }
  return {};
}

}  // namespace kvcachefs
