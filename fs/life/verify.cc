#include "fs/life/verify.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "fs/life/drop.h"
#include "fs/life/page_cache.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"
#include "fs/node/bad_medium.h"

namespace kvcachefs {
namespace {

bool has_checksums(const ObjectRecord& record, const DataStamp& stamp) noexcept {
  return is_same_data(record.sealed, stamp) &&
         record.chunk_crc32c.size() == (stamp.size + kChecksumChunk - 1) / kChecksumChunk;
}

}  // namespace

Result<std::optional<Verifier::Subject>> Verifier::find_subject(Inode& inode, ReadWay way) {
  const auto lock = TRY(lock_to_look(inode));
  const InodeRecord& record = inode.record;
  if (record.state != DataState::kSealed || inode.writers > 0 || record.stamp.size == 0 ||
      inode.damaged_object == record.object)
    return std::optional<Subject>{};
  Tier* tier = TRY(core_.devices->of(inode));
  Result<UniqueFd> fd = fail(EINVAL, "not opened yet");
  const ReadWay asked = way;
  if (way == ReadWay::kPastCache) fd = tier->open(record.object, kOwnRead | O_DIRECT);
  if (!fd.ok() && fd.error().code == EINVAL) {
    way = ReadWay::kThroughCache;
    fd = tier->open(record.object, kOwnRead);
  }
  if (!fd.ok()) return fd.error();
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) return fail_errno("status of a backing file");
  const DataStamp now = stamp_of(status);
  // Who looks at its status makes of it what it is.
  if (!is_same_data(now, record.stamp)) return std::optional<Subject>{};
  return std::optional<Subject>(Subject{.object = record.object,
                                        .device = *inode.device,
                                        .stamp = record.stamp,
                                        .now = now,
                                        .write_opens = inode.write_opens,
                                        .fd = std::move(*fd),
                                        .asked = asked,
                                        .way = way});
}

bool Verifier::is_wanted(Inode& inode, int flags) {
  if (core_.options.verify != VerifyMode::kOpen || (flags & O_TRUNC) != 0) return false;
  const Result<std::optional<Subject>> found = find_subject(inode, ReadWay::kThroughCache);
  if (!found.ok()) return true;  // it has time to find out why
  if (!*found) return false;
  const Subject& subject = **found;
  if (subject.stamp.size > kMostAtOpen) return false;
  if (subject.now != subject.stamp) return true;
  if ((flags & O_DIRECT) != 0) return !holds({subject.object, ReadWay::kPastCache});
  const std::optional<bool> cached = is_cached(subject.fd.get(), subject.stamp.size);
  // Pages on their way into the cache may be those of a comparison; it was noted before the first.
  if (cached.value_or(false)) return is_under_way(subject.object);
  return !is_trusted(subject.object, cached);
}

Result<void> Verifier::verify(const InodePtr& inode, int flags) {
  const ReadWay way = (flags & O_DIRECT) != 0 ? ReadWay::kPastCache : ReadWay::kThroughCache;
  std::optional<Subject> subject = TRY(find_subject(*inode, way));
  if (!subject) return {};
  return compare_once(inode, std::move(*subject), Asker::kOpen);
}

Result<void> Verifier::compare_once(const InodePtr& inode, Subject&& subject, Asker asker) {
  const FlightKey key(subject.object, subject.way);
  std::shared_ptr<Flight> flight;
  {
    std::unique_lock lock(mutex_);
    std::shared_ptr<Flight>& standing = flights_[key];
    if (standing != nullptr) {
      flight = standing;
      landed_.wait(lock, [&flight] { return flight->done; });
      return flight->outcome;
    }
    flight = standing = std::make_shared<Flight>();
  }
  const bool is_open = asker == Asker::kOpen;
  const std::uint64_t size = subject.stamp.size;
  if (is_open) opens_under_way_.fetch_add(1, std::memory_order_relaxed);
  Result<void> outcome = compare(inode, std::move(subject), {});
  if (is_open) {
    opens_under_way_.fetch_sub(1, std::memory_order_relaxed);
    verified_opens_.fetch_add(1, std::memory_order_relaxed);
    verified_bytes_.fetch_add(size, std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  flight->outcome = outcome;
  flight->done = true;
  flights_.erase(key);
  landed_.notify_all();
  return outcome;
}

Result<bool> Verifier::stage(const InodePtr& inode, ObjectId object) {
  std::optional<Subject> subject = TRY(find_subject(*inode, ReadWay::kThroughCache));
  if (!subject || subject->object != object || subject->stamp.size > kMostAtOpen ||
      is_under_way(object))
    return false;
  const std::optional<bool> cached = is_cached(subject->fd.get(), subject->stamp.size);
  if (cached.value_or(false)) return false;
  const bool is_known = subject->now == subject->stamp && is_trusted(object, cached);
  if (core_.options.verify != VerifyMode::kOpen || is_known) {
    ::posix_fadvise(subject->fd.get(), 0, 0, POSIX_FADV_WILLNEED);
    return true;
  }
  TRY(compare_once(inode, std::move(*subject), Asker::kStage));
  return true;
}

Result<void> Verifier::scrub(const InodePtr& inode, ObjectId object,
                             const std::function<bool(std::uint64_t bytes)>& go_on) {
  std::optional<Subject> subject = TRY(find_subject(*inode, ReadWay::kPastCache));
  if (!subject || subject->object != object) return {};
  return compare(inode, std::move(*subject), go_on);
}

Result<void> Verifier::compare(const InodePtr& inode, Subject&& subject,
                               const std::function<bool(std::uint64_t bytes)>& go_on) {
  std::optional<ObjectRecord> record = TRY(core_.catalog.find_object(subject.object));
  // fsck has such a file sealed anew.
  if (!record || !has_checksums(*record, subject.stamp)) return {};
  // Each piece that is read is a question of its own.
  std::optional<Devices::Question> asked;
  asked.emplace(*core_.devices, subject.device);
  const Result<Compared> compared =
      compare_bytes(*inode, subject, *record, [&](std::uint64_t bytes) {
        asked.reset();
        if (go_on && !go_on(bytes)) return false;
        asked.emplace(*core_.devices, subject.device);
        return true;
      });
  asked.reset();
  if (compared.ok() && compared->ended_early) return {};
  if (compared.ok() && compared->equal) {
    remember({subject.object, subject.asked});
    if (subject.now == subject.stamp) return {};
    return adopt_ctime(*inode, subject, std::move(*record));
  }
  if (!compared.ok() && !is_bad_medium(compared.error().code)) {
    // What was read so far must not pass for verified.
    if (subject.way == ReadWay::kThroughCache)
      ::posix_fadvise(subject.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    return compared.error();
  }
  const Verdict verdict = judge(*inode, subject);
  if (verdict == Verdict::kNotJudged) return {};
  if (verdict == Verdict::kFoundBefore) {
    wait_until_dropped(subject.object);
    return fail(ESTALE, "its bytes are not the sealed ones");
  }
  if (compared.ok()) {
    log_error("verify inode={} object={} event=differs offset={}", inode->number,
              subject.object, compared->differs_at);
  } else {
    log_error("verify inode={} object={} event=unreadable errno={}", inode->number,
              subject.object, compared.error().code);
    const std::lock_guard lock(inode->mutex);
    if (inode->device) core_.devices->failed(*inode->device, compared.error().code);
  }
  const Result<void> dropped = drop_names(
      core_, inode->number, compared.ok() ? DropReason::kDamaged : DropReason::kUnreadable);
  if (!dropped.ok()) {
    log_error("verify inode={} event=not_dropped errno={} step=\"{}\"", inode->number,
              dropped.error().code, dropped.error().what);
    // Who opens it next finds it again.
    const std::lock_guard lock(inode->mutex);
    if (inode->damaged_object == subject.object) inode->damaged_object = kNoObject;
  }
  {
    const std::lock_guard lock(mutex_);
    dropping_.erase(subject.object);
    landed_.notify_all();
  }
  return fail(ESTALE, "its bytes are not the sealed ones");
}

Result<Compared> Verifier::compare_bytes(
    Inode& inode, Subject& subject, const ObjectRecord& record,
    const std::function<bool(std::uint64_t bytes)>& go_on) {
  Result<Compared> compared = compare_file(subject.fd.get(), subject.stamp.size,
                                           record.chunk_crc32c, subject.way, go_on);
  if (compared.ok() || compared.error().code != EINVAL || subject.way != ReadWay::kPastCache)
    return compared;
  // A device that wants another alignment.
  std::optional<Subject> again = TRY(find_subject(inode, ReadWay::kThroughCache));
  if (!again || again->object != subject.object)
    return Compared{.equal = false, .ended_early = true, .differs_at = 0};
  again->asked = subject.asked;
  subject = std::move(*again);
  return compare_file(subject.fd.get(), subject.stamp.size, record.chunk_crc32c, subject.way,
                      go_on);
}

// The bytes are the sealed ones: from now on it is known by its new ctime.
Result<void> Verifier::adopt_ctime(Inode& inode, const Subject& subject,
                                   ObjectRecord&& record) {
  const std::lock_guard lock(inode.mutex);
  InodeRecord next = inode.record;
  if (next.object != subject.object || next.state != DataState::kSealed ||
      next.stamp != subject.stamp)
    return {};
  next.stamp = subject.now;
  record.sealed = subject.now;
  Edit edit;
  edit.put_object(subject.object, record);
  return commit_record(core_, inode, std::move(next), std::move(edit));
}

// Damage only if nobody can have changed it: not a writer, and not a store through a mapping.
Verifier::Verdict Verifier::judge(Inode& inode, const Subject& subject) {
  const std::lock_guard lock(inode.mutex);
  const InodeRecord& record = inode.record;
  if (record.object != subject.object || record.state != DataState::kSealed ||
      inode.writers > 0 || inode.write_opens != subject.write_opens)
    return Verdict::kNotJudged;
  struct stat status {};
  if (::fstat(subject.fd.get(), &status) != 0 || !is_same_data(stamp_of(status), record.stamp))
    return Verdict::kNotJudged;
  // Found by two at once, an open and the scrub: the first of them drops its names.
  if (inode.damaged_object == subject.object) return Verdict::kFoundBefore;
  inode.damaged_object = subject.object;
  const std::lock_guard dropping(mutex_);
  dropping_.insert(subject.object);
  return Verdict::kDamaged;
}

void Verifier::wait_until_dropped(ObjectId object) {
  std::unique_lock lock(mutex_);
  landed_.wait_for(lock, kLongestDrop, [&] { return dropping_.count(object) == 0; });
}

bool Verifier::holds(const FlightKey& compared) {
  const std::lock_guard lock(mutex_);
  const auto at = verified_at_.find(compared);
  return at != verified_at_.end() && monotonic_now() - at->second < kHoldsFor;
}

bool Verifier::is_trusted(ObjectId object, std::optional<bool> cached) {
  return holds({object, ReadWay::kThroughCache}) && !(cached && core_.passthrough());
}

void Verifier::remember(const FlightKey& compared) {
  const std::int64_t now = monotonic_now();
  const std::lock_guard lock(mutex_);
  verified_at_[compared] = now;
  verified_in_order_.emplace_back(compared, now);
  while (verified_in_order_.size() > kMostRemembered) {
    const auto [oldest, when] = verified_in_order_.front();
    verified_in_order_.pop_front();
    const auto at = verified_at_.find(oldest);
    if (at != verified_at_.end() && at->second == when) verified_at_.erase(at);
  }
}

bool Verifier::is_under_way(ObjectId object) {
  const std::lock_guard lock(mutex_);
  return flights_.count({object, ReadWay::kThroughCache}) > 0;
}

}  // namespace kvcachefs
