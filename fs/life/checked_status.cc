#include "fs/life/checked_status.h"

#include <fcntl.h>

#include <cerrno>
#include <optional>

#include "backend/base/clock.h"
#include "backend/base/units.h"
#include "fs/life/checksum.h"
#include "fs/life/drop.h"
#include "fs/life/has_sealed_bytes.h"
#include "fs/life/obstacle.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"

namespace kvcachefs {
namespace {

// More is not read while somebody waits for an answer.
constexpr std::uint64_t kMostJudged = 256 * kMiB;

// Before locks are taken and something is written.
Result<void> may_change() {
  if (refuses_to_wait()) return fail(kMustWait, "a backing file is to be judged");
  return {};
}

// What is on a lost device is a miss, and is stored again elsewhere; what must be kept waits for it.
Result<void> check_device(Core& core, Inode& inode) {
  {
    const std::lock_guard lock(inode.mutex);
    if (!core.devices->of(inode).ok() || inode.record.nlink == 0) return {};
    if (core.devices->state(*inode.device) != DeviceState::kLost) return {};
  }
  if (TRY(note_policy(core, inode)).policy >= FilePolicy::kKeep)
    return fail(EIO, "its device is lost");
  TRY(drop_names(core, inode.number, DropReason::kLost));
  return fail(ENOENT, "its device is lost");
}

// Its bytes are on the pool alone.
struct stat remote_status(const InodeRecord& record) {
  struct stat status {};
  status.st_mode = S_IFREG;
  status.st_nlink = 1;
  status.st_size = static_cast<off_t>(record.stamp.size);
  // None would say to tools that it is a hole.
  status.st_blocks = static_cast<blkcnt_t>((record.stamp.size + 511) / 512);
  status.st_blksize = 4096;
  status.st_atim = status.st_mtim = to_timespec(record.stamp.mtime);
  status.st_ctim = to_timespec(record.stamp.ctime);
  return status;
}

// Nobody has written to it in this run: what it is by now it was when the run began, or it was changed below the mount.
// Who opened it for writing has had it judged before, and may store through a mapping since. The wall clock has no say
// where all such mappings are known, because it may have been set: its times are of no order then.
bool is_of_older_runs(const Core& core, const Inode& inode, const DataStamp& now,
                      UnixNanos began) {
  if (inode.write_opens > 0 || core.unseen.holds(inode.number)) return false;
  return core.unseen.is_whole() || now.mtime < began;
}

// The machine went down while it was being changed, and the record of that was lost (fs/life/recover.h: what is mutable).
bool is_of_cut_run(const Core& core, const Inode& inode, const DataStamp& now) {
  if (inode.record.object >= core.cut.before) return false;
  // Runs since then may have had writers whom this one does not know.
  return core.is_first_since_cut ? is_of_older_runs(core, inode, now, core.cut.ended)
                                 : now.mtime < core.cut.ended;
}

// It was sealed, with checksums, when the last run ended, nobody had it open or mapped any more,
// and nobody has opened it for writing since: it was changed below the mount.
bool was_changed_below(const Core& core, const Inode& inode, const DataStamp& now) {
  const ObjectId object = inode.record.object;
  return core.closed_from && object >= *core.closed_from && object < core.first_object &&
         is_of_older_runs(core, inode, now, core.started) &&
         inode.record.stamp.size <= kMostChecksummedBytes;
}

Result<UniqueFd> open_backing(Core& core, Inode& inode, ObjectId object) {
  const std::lock_guard lock(inode.mutex);
  if (inode.record.object != object) return fail(ESTALE, "written anew");
  Tier* tier = TRY(core.devices->of(inode));
  return tier->open(object, kOwnRead);
}

// It is new in time, or in where its change is noted, and has the sealed bytes all the same.
bool has_come_through(Core& core, Inode& inode, ObjectId object) {
  const Result<UniqueFd> fd = open_backing(core, inode, object);
  if (!fd.ok()) return false;
  const Result<bool> has = has_sealed_bytes(core, object, *fd);
  return has.ok() && *has;
}

Result<struct stat> take_as_changed(Core& core, Inode& inode, ObjectId object,
                                    const struct stat& backing) {
  {
    const std::lock_guard lock(inode.mutex);
    // Somebody else did, or writes it by now.
    if (inode.record.state != DataState::kSealed || inode.record.object != object ||
        inode.writers > 0)
      return backing;
    InodeRecord next = inode.record;
    Edit edit;
    inode.appended_object.store(kNoObject);
    prepare_change(inode.number, next, edit);
    next.stamp = stamp_of(backing);
    TRY(commit_record(core, inode, std::move(next), std::move(edit)));
  }
  core.counters.changed_on_purpose.fetch_add(1, std::memory_order_relaxed);
  if (core.on_unwritten) core.on_unwritten(inode.number);
  return backing;
}

// Of what was found a moment ago the kernel has name and inode in memory; to make sure of that
// costs a descriptor, and a third of an open.
Result<struct stat> status_of_backing(Core& core, Inode& inode, Tier& tier, ObjectId object) {
  constexpr std::int64_t kStaysInMemory = 10 * kNanosPerSecond;
  const std::int64_t now = monotonic_now();
  const std::int64_t seen = inode.seen_at.load(std::memory_order_relaxed);
  std::optional<MayWait> here;
  if (seen != 0 && now - seen < kStaysInMemory && !core.devices->any_silent()) here.emplace();
  Result<struct stat> status =
      here ? tier.status(object) : core.devices->status_of_copy(*inode.device, object);
  if (status.ok()) inode.seen_at.store(now, std::memory_order_relaxed);
  return status;
}

}  // namespace

Error miss_or_error(Core& core, Inode& inode, const Error& error, int miss) {
  if (error.code == ENOENT) return fail(miss, error.what);
  if (error.code != ETIMEDOUT) return error;
  const Result<Treatment> treated = note_policy(core, inode);
  const bool is_kept = !treated.ok() || treated->policy >= FilePolicy::kKeep;
  return fail(is_kept ? EIO : miss, error.what);
}

Result<struct stat> checked_status(Core& core, Inode& inode) {
  {
    const auto lock = TRY(lock_to_look(inode));
    if (inode.record.state == DataState::kRemote) return remote_status(inode.record);
  }
  if (core.devices->any_lost()) {
    TRY(may_change());
    TRY(check_device(core, inode));
  }
  DropReason reason = DropReason::kLost;
  ObjectId object = kNoObject;
  {
    auto lock = TRY(lock_to_look(inode));
    Result<Tier*> tier = core.devices->of(inode);
    const InodeRecord& record = inode.record;
    object = record.object;
    if (tier.ok()) {
      const Result<struct stat> backing = status_of_backing(core, inode, **tier, object);
      if (!backing.ok() &&
          (backing.error().code == kMustWait || backing.error().code == ETIMEDOUT))
        return backing.error();
      if (backing.ok()) {
        const DataStamp now = stamp_of(*backing);
        if (record.state != DataState::kSealed || inode.writers > 0 ||
            is_same_data(now, record.stamp) || record.nlink == 0)
          return *backing;
        TRY(may_change());
        const bool is_of_cut = is_of_cut_run(core, inode, now);
        const bool is_below = !is_of_cut && was_changed_below(core, inode, now);
        const bool is_synced = (record.flags & kInodeFsynced) != 0;
        const bool is_same_size = now.size == record.stamp.size;
        const bool is_longer = is_written_on(record, now);
        lock.unlock();
        const bool is_kept =
            is_of_cut &&
            (is_synced || obstacle_by_policy(TRY(note_policy(core, inode))) != Obstacle::kNone);
        // A store through a mapping that outlived its descriptor, or an application's own
        // doing: no damage.
        bool is_on_purpose = is_same_size || is_longer;
        if (is_of_cut)
          is_on_purpose = is_kept || (is_same_size && now.size <= kMostJudged &&
                                      has_come_through(core, inode, object));
        // Other times alone are none.
        if (is_below) is_on_purpose = is_same_size && has_come_through(core, inode, object);
        if (is_on_purpose) return take_as_changed(core, inode, object, *backing);
        // Nobody had it open for writing, and a mapping cannot change a size.
        reason = is_of_cut ? DropReason::kIncomplete : DropReason::kDamaged;
      } else if (backing.error().code != ENOENT || record.nlink == 0) {
        const Error error = backing.error();
        if (error.code != ENOENT) core.devices->failed(*inode.device, error.code);
        if (error.code != EBADMSG || record.nlink == 0) return error;
        // Something else stands in its place, or the filesystem cannot read what it is: the
        // file is damaged. One that is to be kept may come back by a check of that filesystem.
        TRY(may_change());
        lock.unlock();
        if (TRY(note_policy(core, inode)).policy >= FilePolicy::kKeep) return error;
        reason = DropReason::kDamaged;
      } else if (record.object < core.cut.before) {
        reason = DropReason::kIncomplete;
      }
    } else if (tier.error().code != ENOENT) {
      return tier.error();
    }
  }
  TRY(may_change());
  // Not what was written anew since.
  TRY(drop_names(core, inode.number, reason, {},
                 {.may_go = [object](const Inode& now) -> Result<bool> {
                   return now.record.object == object;
                 }}));
  return fail(ENOENT, "its backing file is lost");
}

}  // namespace kvcachefs
