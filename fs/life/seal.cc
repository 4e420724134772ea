#include "fs/life/seal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/raise_to.h"
#include "fs/life/checksum.h"
#include "fs/life/drop.h"
#include "fs/life/obstacle.h"
#include "fs/life/states.h"
#include "fs/life/sync_files.h"
#include "fs/node/attributes.h"

namespace kvcachefs {

// A file that was ready when it was looked at, and what must still hold when its seal is
// recorded.
struct SealCandidate {
  InodePtr inode;
  ObjectId object = kNoObject;
  std::uint64_t write_opens = 0;
  std::uint64_t size = 0;  // about
  bool failed = false;     // a write of it was: its names go
  bool appended = false;   // since its last seal, and nothing else
  UniqueFd fd;
  FileToSync sync;  // of the descriptor
};

namespace {

// A file that is changed again and again is read again by each seal: at this rate, all in all, and
// it waits for so long at most.
constexpr std::uint64_t kResealRate = 20'000'000;  // bytes a second
constexpr std::uint64_t kResealedAtOnce = 64 << 20;
constexpr std::chrono::nanoseconds kLongestPostponed = std::chrono::seconds{60};
// Up to this many files each get a journal commit of their own.
constexpr std::size_t kFewFiles = 4;

enum class Sealed { kYes, kNotReady, kPoisoned };

// When a file that was sealed then may be sealed again; monotonic.
std::int64_t due_again(std::int64_t sealed_ns, std::uint64_t size) noexcept {
  if (sealed_ns == 0 || size < kResealedAtOnce) return 0;
  const std::chrono::nanoseconds pause = std::chrono::milliseconds(size / (kResealRate / 1000));
  return sealed_ns + std::min(pause, kLongestPostponed).count();
}

struct Looked {
  std::optional<SealCandidate> file;  // nullopt: it is not ready
  std::int64_t due_ns = 0;            // it will be then, monotonic; 0: that is told
};

// An error: it is to be looked at again. `may_postpone`: nobody waits for it.
Result<Looked> find_candidate(Core& core, InodeNumber number,
                              const std::set<std::uint32_t>& busy, bool may_postpone) {
  const auto none = [](const Error& error, int is_answer) {
    return error.code == is_answer ? Result<Looked>(Looked{}) : Result<Looked>(error);
  };
  Result<InodePtr> inode = core.table.get(number);
  if (!inode.ok()) return none(inode.error(), ESTALE);
  // Somebody changes it, for as long as its disk takes.
  const std::unique_lock lock((*inode)->mutex, std::try_to_lock);
  if (!lock) return fail(EAGAIN, "it is being changed");
  const InodeRecord& record = (*inode)->record;
  Result<Tier*> tier = core.devices->of(**inode);
  if (!tier.ok()) return none(tier.error(), ENOENT);
  const std::uint32_t disk = *(*inode)->device;
  if (busy.count(disk) > 0) return fail(EBUSY, "others of its disk are being sealed");
  // Its last close could not publish it: the database was full, or failed for a moment.
  const bool is_late = record.state == DataState::kUnpublished && record.nlink > 0 &&
                       (*inode)->write_opens > 0 && (*inode)->writers == 0 &&
                       !(*inode)->is_going();
  if (is_late) {
    if (const Result<void> published = publish_locked(core, **inode); !published.ok())
      return none(published.error(), ENOENT);
  }
  const bool failed = (*inode)->is_going() && (record.flags & kInodePoisoned) != 0;
  const bool ready =
      failed || record.state == DataState::kPublished || record.state == DataState::kMutable;
  if (!ready || (*inode)->writers > 0 || record.nlink == 0) return Looked{};
  const bool appended = (*inode)->appended_object.load() == record.object;
  if (may_postpone && record.state == DataState::kMutable && !failed && !appended) {
    const std::int64_t due = due_again((*inode)->sealed_at_ns, record.stamp.size);
    if (due > monotonic_now()) return Looked{.file = {}, .due_ns = due};
  }
  Result<UniqueFd> fd = core.devices->open_copy(disk, record.object, kOwnRead);
  if (!fd.ok()) return none(fd.error(), ENOENT);
  const FileToSync sync{.fd = fd->get(), .device = disk, .stamp = {}};
  return Looked{.file = SealCandidate{.inode = *inode,
                                      .object = record.object,
                                      .write_opens = (*inode)->write_opens,
                                      .size = record.stamp.size,
                                      .failed = failed,
                                      .appended = appended,
                                      .fd = std::move(*fd),
                                      .sync = sync},
                .due_ns = 0};
}

// Whether the checksums that the object has already are of the file as it is.
bool has_standing_sums(const std::optional<ObjectRecord>& object, const DataStamp& now) {
  return object && object->sealed == now && (!object->chunk_crc32c.empty() || now.size == 0) &&
         object->sealed.ctime != 0;
}

// The checksums of the whole chunks of the last seal, where bytes were added to these alone.
std::vector<std::uint32_t> standing_chunks(const SealCandidate& file,
                                           std::optional<ObjectRecord>&& object,
                                           const DataStamp& now) {
  if (!file.appended || !object || object->sealed.size > now.size) return {};
  const auto whole = static_cast<std::size_t>(object->sealed.size / kChecksumChunk);
  if (object->chunk_crc32c.size() < whole) return {};
  std::vector<std::uint32_t> sums = std::move(object->chunk_crc32c);
  sums.resize(whole);
  return sums;
}

Result<Sealed> record_seal(Core& core, const SealCandidate& file, const DataStamp& stamp,
                           const ObjectRecord& object, bool is_new) {
  const std::lock_guard lock(file.inode->mutex);
  InodeRecord next = file.inode->record;
  const bool unchanged =
      next.object == file.object && file.inode->writers == 0 &&
      file.inode->write_opens == file.write_opens && next.nlink > 0 &&
      (next.state == DataState::kPublished || next.state == DataState::kMutable);
  if (!unchanged) return Sealed::kNotReady;
  // Changed meanwhile: wait for the next pass. Who truncates it by name, or gives it other times, holds the
  // lock, and counts as no writer.
  struct stat backing {};
  if (::fstat(file.fd.get(), &backing) != 0) return fail_errno("status of a backing file");
  if (stamp_of(backing) != stamp) return Sealed::kNotReady;
  Edit edit;
  enter_state(file.inode->number, next, DataState::kSealed, edit);
  next.stamp = stamp;
  if (file.object < core.first_object) next.flags |= kInodeMayGrow;
  edit.put_object(file.object, object);
  if (core.is_publishing && (is_new || !TRY(core.catalog.find_pool_copy(file.inode->number))))
    edit.put_to_publish(file.inode->number, stamp.size);
  TRY(commit_record(core, *file.inode, std::move(next), std::move(edit), Lend::kYes));
  file.inode->may_be_stored_to = false;
  const bool is_mappable = file.inode->mappable_object == file.object;
  file.inode->appended_from.store(stamp.size);
  file.inode->appended_object.store(is_mappable ? kNoObject : file.object);
  file.inode->sealed_at_ns = monotonic_now();
  return Sealed::kYes;
}

void sync_all(Core& core, std::vector<SealCandidate>& batch) {
  std::vector<FileToSync> files;
  files.reserve(batch.size());
  for (const SealCandidate& file : batch) files.push_back(file.sync);
  sync_together(*core.devices, files);
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i].sync = files[i];
}

// `under_way` and `committed`: seals that are about to be in the catalog, and those that are.
Result<Sealed> seal_one(Core& core, SealCandidate& file, std::atomic<std::uint64_t>& under_way,
                        std::atomic<std::uint64_t>& committed) {
  if (!file.sync.stamp) TRY(sync_alone(file.sync));
  if (const int code = file.sync.error; code != 0) {
    if (code == EINTR) return Sealed::kNotReady;
    core.devices->failed(file.sync.device, code);
    return Sealed::kPoisoned;
  }
  if (file.inode->torn_object.load() == file.object) return Sealed::kPoisoned;
  const DataStamp stamp = *file.sync.stamp;
  std::optional<ObjectRecord> object = TRY(core.catalog.find_object(file.object));
  const bool is_new = !has_standing_sums(object, stamp);
  if (is_new) {
    std::vector<std::uint32_t> known = standing_chunks(file, std::move(object), stamp);
    object = ObjectRecord{.inode = file.inode->number,
                          .device = file.sync.device,
                          .chunk_crc32c = {},
                          .sealed = stamp};
    if (stamp.size <= kMostChecksummedBytes) {
      Result<std::vector<std::uint32_t>> sums =
          checksum_file(file.fd.get(), stamp.size, std::move(known));
      if (!sums.ok() && sums.error().code == ENODATA) return Sealed::kNotReady;
      if (!sums.ok()) {
        core.devices->failed(file.sync.device, sums.error().code);
        return sums.error();
      }
      object->chunk_crc32c = std::move(*sums);
    }
  }
  ++under_way;
  Result<Sealed> recorded = record_seal(core, file, stamp, *object, is_new);
  if (recorded.ok() && *recorded == Sealed::kYes) ++committed;
  --under_way;
  return recorded;
}

// Whether its file is still the one that could not be sealed. The caller holds the inode's lock.
bool is_as_found(const SealCandidate& file) {
  const Inode& inode = *file.inode;
  return inode.record.object == file.object && inode.writers == 0 &&
         inode.write_opens == file.write_opens;
}

// What the disk has refused is a miss from now on; not what was written anew since, and not what is whole and to be kept: an
// application's file has errors, and is there. False: it is to be looked at again.
Result<bool> give_up(Core& core, const SealCandidate& file) {
  DropReason reason = DropReason::kPoisoned;
  if (file.failed) {
    const std::lock_guard lock(file.inode->mutex);
    reason = drop_reason_of(file.inode->write_errno);
    // What it was before may not be sealed either.
    if (TRY(take_back_failed(core, *file.inode))) return !is_unsealed(file.inode->record.state);
    // Somebody still has it open: when he has closed it.
    if (file.inode->is_going() && file.inode->record.previous_object != kNoObject) return false;
  }
  const bool is_kept =
      !file.failed &&
      obstacle_by_policy(TRY(note_policy(core, *file.inode))) != Obstacle::kNone;
  bool stays = false;
  bool has_error = false;
  TRY(drop_names(core, file.inode->number, reason, {},
                 {.may_go = [&](const Inode& inode) -> Result<bool> {
                   const bool is_synced = (inode.record.flags & kInodeFsynced) != 0;
                   has_error = !file.failed && (is_kept || is_synced);
                   stays = !is_as_found(file) || has_error;
                   return !stays;
                 }}));
  // Of a refused write: it is sealed with what is there.
  ObjectId torn = file.object;
  if (has_error) file.inode->torn_object.compare_exchange_strong(torn, kNoObject);
  return !stays;
}

}  // namespace

void Sealer::start() {
  thread_ = std::thread([this] { run(); });
}

void Sealer::wake(InodeNumber number) {
  const std::lock_guard lock(mutex_);
  wake_locked(number);
}

void Sealer::wake_locked(InodeNumber number) {
  last_wake_ = Clock::now();
  if (!pending_ || first_wake_ > last_wake_) first_wake_ = last_wake_;
  pending_ = true;
  from_ = std::min(from_, number);
  // Woken once for a burst: the thread looks at last_wake_ when its quiet time is over.
  changed_.notify_one();
}

std::uint64_t Sealer::want_sync() {
  const std::lock_guard lock(mutex_);
  sync_wanted_ = true;
  changed_.notify_one();
  return ++wanted_;
}

Sealer::~Sealer() { stop(std::chrono::seconds(0)); }

bool Sealer::sync() {
  std::uint64_t wanted = 0;
  {
    const std::lock_guard lock(mutex_);
    sync_wanted_ = false;
    wanted = wanted_;
  }
  const std::uint64_t committed = committed_;
  if (const Result<void> synced = core_.catalog.sync(); !synced.ok()) {
    log_error("what was closed is not durable: catalog sync failed errno={}",
              synced.error().code);
    return false;
  }
  // Another one that began later may have ended before.
  raise_to(on_disk_, committed);
  raise_to(synced_, wanted);
  return true;
}

void Sealer::stop(std::chrono::milliseconds deadline) {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_by_ = Clock::now() + deadline;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);
  none_busy_.wait(lock, [this] { return busy_.empty(); });
}

bool Sealer::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

bool Sealer::out_of_time() {
  const std::lock_guard lock(mutex_);
  return stopping_ && Clock::now() >= stop_by_;
}

void Sealer::hurry() {
  const std::lock_guard lock(mutex_);
  // What is not pending was looked at, and is not ready; and what failed again and again has its pause.
  hurried_ = pending_ && (first_wake_ <= Clock::now() || is_postponed_);
  changed_.notify_one();
}

void Sealer::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || pending_ || sync_wanted_; });
    if (sync_wanted_ && !stopping_) {
      lock.unlock();
      static_cast<void>(sync());
      lock.lock();
      continue;
    }
    while (pending_ && !stopping_) {
      const auto due = std::min(last_wake_ + kQuiet, first_wake_ + kLongestWait);
      if (Clock::now() >= due || sync_wanted_ || hurried_) break;
      // A wake may bring it nearer: of what failed, or was postponed, it is far.
      changed_.wait_until(lock, due);
    }
    if (sync_wanted_ && !stopping_) continue;
    if (pending_) {
      pending_ = false;
      is_hurried_pass_ = std::exchange(hurried_, false);
      lock.unlock();
      pass();
      lock.lock();
    }
    if (stopping_ && (!pending_ || Clock::now() >= stop_by_)) return;
  }
}

void Sealer::Outcome::leave(InodeNumber number) noexcept {
  first_left = std::min(first_left, number);
}

void Sealer::Outcome::leave_and_retry(InodeNumber number) noexcept {
  leave(number);
  retry = true;
}

void Sealer::Outcome::postpone(std::int64_t until_ns) noexcept {
  due_ns = due_ns == 0 ? until_ns : std::min(due_ns, until_ns);
}

void Sealer::Outcome::add(const Outcome& other) noexcept {
  sealed += other.sealed;
  if (other.due_ns != 0) postpone(other.due_ns);
  leave(other.first_left);
  retry = retry || other.retry;
  look_soon = look_soon || other.look_soon;
}

void Sealer::pass() {
  InodeNumber after = 0;
  {
    const std::lock_guard lock(mutex_);
    after = from_ == 0 ? 0 : from_ - 1;
    from_ = UINT64_MAX;
  }
  Outcome all;
  // Those of the last pass, when its sync has failed.
  all.retry = unsynced() > 0 && !sync();
  while (true) {
    if (out_of_time()) {
      all.leave(after + 1);
      break;
    }
    Result<std::vector<InodeNumber>> numbers = core_.catalog.list_unsealed(after, kBatch);
    if (!numbers.ok()) {
      all.leave_and_retry(after + 1);
      break;
    }
    if (numbers->empty()) break;
    const Outcome outcome = seal(collect(*numbers, after, all));
    all.add(outcome);
    if (outcome.sealed > 0 && !finish(outcome.sealed)) all.retry = true;
  }
  const std::lock_guard lock(mutex_);
  from_ = std::min(from_, all.first_left);
  if (!all.retry) retry_after_ = kQuiet;
  if (all.look_soon && !all.retry && !pending_) {
    first_wake_ = last_wake_ = Clock::now();
    pending_ = true;
  }
  is_postponed_ = all.due_ns != 0;
  if (is_postponed_ && !all.retry && !pending_) {
    const std::chrono::nanoseconds left{
        std::max<std::int64_t>(all.due_ns - monotonic_now(), 0)};
    first_wake_ = last_wake_ = Clock::now() + left - kQuiet;
    pending_ = true;
  }
  if (all.retry && !stopping_) {
    // Something moved under the seal, or a disk fails: again after a quiet time, or, if nobody stores anything else, a longer
    // one each time.
    const Clock::time_point at = Clock::now() + retry_after_ - kQuiet;
    if (!pending_) first_wake_ = last_wake_ = at;
    pending_ = true;
    retry_after_ = std::min<Clock::duration>(2 * retry_after_, kLongestRetry);
  }
}

Sealer::Batches Sealer::collect(const std::vector<InodeNumber>& numbers, InodeNumber& after,
                                Outcome& outcome) {
  std::set<std::uint32_t> busy;
  bool may_postpone = false;
  {
    const std::lock_guard lock(mutex_);
    busy = busy_;
    may_postpone = !is_hurried_pass_ && !stopping_;
  }
  Batches batches;
  std::uint64_t bytes = 0;
  for (const InodeNumber number : numbers) {
    if (bytes >= kBatchBytes) break;
    after = number;
    Result<Looked> looked = find_candidate(core_, number, busy, may_postpone);
    if (looked.ok() && looked->file) {
      bytes += looked->file->size;
      std::unique_ptr<Batch>& batch = batches[looked->file->sync.device];
      if (batch == nullptr) batch = std::make_unique<Batch>();
      batch->push_back(std::move(*looked->file));
      continue;
    }
    outcome.leave(number);
    if (looked.ok() && looked->due_ns != 0) outcome.postpone(looked->due_ns);
    // The end of a batch is told.
    if (looked.ok() || looked.error().code == EBUSY) continue;
    if (looked.error().code == EAGAIN) {
      outcome.look_soon = true;
      continue;
    }
    outcome.retry = true;
    log_debug("not sealed inode={} errno={} step=\"{}\"", number, looked.error().code,
              looked.error().what);
  }
  return batches;
}

// Of one of several disks, on a thread that holds up nobody else's files.
class Sealer::BatchUnderWay {
 public:
  BatchUnderWay(Sealer& sealer, std::uint32_t disk, std::unique_ptr<Batch> batch)
      : sealer_(sealer), disk_(disk), left_(all_of(*batch)), call_(begin(std::move(batch))) {}

  Outcome until(Clock::time_point deadline) {
    const Result<Outcome> outcome = call_.until(deadline);
    const bool is_late = !outcome.ok() && outcome.error().code == ETIMEDOUT;
    if (!is_late) {
      const std::lock_guard lock(sealer_.mutex_);
      sealer_.busy_.erase(disk_);
    }
    if (outcome.ok()) return *outcome;
    left_.retry = !is_late;
    return left_;
  }

 private:
  static Outcome all_of(const Batch& batch) {
    Outcome left;
    for (const SealCandidate& file : batch) left.leave(file.inode->number);
    return left;
  }

  TimedCall<Outcome> begin(std::unique_ptr<Batch> batch) {
    {
      const std::lock_guard lock(sealer_.mutex_);
      sealer_.busy_.insert(disk_);
    }
    const std::shared_ptr<Batch> files = std::move(batch);
    // Its inodes must not outlive the table, nor its thread's last look at them the sealer.
    const auto seal_them = [&sealer = sealer_, files]() -> Result<Outcome> {
      const Outcome outcome = sealer.seal_all(*files);
      files->clear();
      return outcome;
    };
    return sealer_.core_.devices->begin_work<Outcome>(
        disk_, seal_them, [&sealer = sealer_, disk = disk_](const Result<Outcome>& late) {
          sealer.finish_late(disk, *late);
        });
  }

  Sealer& sealer_;
  const std::uint32_t disk_;
  Outcome left_;  // when it is not done
  TimedCall<Outcome> call_;
};

Sealer::Outcome Sealer::seal(Batches batches) {
  Outcome outcome;
  if (core_.devices->count() == 1) {
    for (const auto& [disk, batch] : batches) outcome.add(seal_all(*batch));
    return outcome;
  }
  std::vector<BatchUnderWay> under_way;
  under_way.reserve(batches.size());
  for (auto& [disk, batch] : batches) under_way.emplace_back(*this, disk, std::move(batch));
  const Clock::time_point deadline = Clock::now() + kLongestBatch;
  for (BatchUnderWay& batch : under_way) outcome.add(batch.until(deadline));
  return outcome;
}

Sealer::Outcome Sealer::seal_all(Batch& batch) {
  Outcome outcome;
  if (batch.size() > kFewFiles && !stopping()) sync_all(core_, batch);
  for (SealCandidate& file : batch) {
    if (out_of_time()) {
      outcome.leave(file.inode->number);
    } else {
      seal_file(file, outcome);
    }
    // As long as the daemon has it open it cannot tell who else has.
    file.fd.reset();
  }
  return outcome;
}

void Sealer::seal_file(SealCandidate& file, Outcome& outcome) {
  const InodeNumber number = file.inode->number;
  // Its names may change just now: what was known holds.
  static_cast<void>(note_policy(core_, *file.inode).ok());
  const Result<Sealed> sealed = file.failed ? Result<Sealed>(Sealed::kPoisoned)
                                            : seal_one(core_, file, under_way_, committed_);
  if (sealed.ok() && *sealed == Sealed::kYes) {
    ++outcome.sealed;
    {
      // What nobody has renamed, or opened since it was made, can go as well.
      const std::lock_guard lock(file.inode->mutex);
      if (file.inode->record.nlink > 0) put_in_order(core_, *file.inode);
    }
    // Counted as sealed only after finish().
    core_.counters.unsealed.fetch_add(1, std::memory_order_relaxed);
  } else if (sealed.ok() && *sealed == Sealed::kPoisoned) {
    const Result<bool> gone = give_up(core_, file);
    if (!gone.ok()) log_error("poison failed inode={} errno={}", number, gone.error().code);
    if (!gone.ok() || !*gone) outcome.leave_and_retry(number);
  } else {
    if (!sealed.ok() && sealed.error().code != ENOSPC) {  // said once, by who found it
      log_warn("seal failed inode={} errno={} step=\"{}\"", number, sealed.error().code,
               sealed.error().what);
    }
    outcome.leave_and_retry(number);
  }
}

bool Sealer::finish(std::uint64_t sealed) {
  const bool is_synced = sync();
  // Who sees that nothing is left sees all that was done.
  core_.counters.sealed_total.fetch_add(sealed, std::memory_order_relaxed);
  core_.counters.unsealed.fetch_sub(sealed);
  if (core_.is_pooled && core_.on_pool_work) core_.on_pool_work();
  return is_synced;
}

// What the pass has left for it is looked at now.
void Sealer::finish_late(std::uint32_t disk, const Outcome& outcome) {
  if (outcome.sealed > 0) static_cast<void>(finish(outcome.sealed));
  const std::lock_guard lock(mutex_);
  busy_.erase(disk);
  wake_locked(outcome.first_left);
  hurried_ = hurried_ || !outcome.retry;
  none_busy_.notify_all();
}

}  // namespace kvcachefs
