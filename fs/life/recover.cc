#include "fs/life/recover.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <vector>

#include "backend/base/log.h"
#include "fs/life/drop.h"
#include "fs/life/has_sealed_bytes.h"
#include "fs/life/run_identity.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"
#include "fs/node/bad_medium.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kInodesAtOnce = 1024;

std::vector<Tier*> tiers_of(Core& core) {
  std::vector<Tier*> tiers;
  for (const auto& tier : core.devices->tiers()) tiers.push_back(tier.get());
  return tiers;
}

Result<void> make_root(Core& core) {
  const UnixNanos now = file_clock_now();
  InodeRecord root;
  root.mode = S_IFDIR | 0755;
  root.nlink = 2;
  root.atime = root.mtime = root.ctime = root.btime = now;
  Edit edit;
  edit.put_inode(kRootInode, root);
  return core.catalog.commit(std::move(edit));
}

enum class Verdict { kKeep, kDrop, kRestore };

// A close waited for the disk, and it is still to be kept.
bool is_kept_on_disk(Core& core, const Inode& inode) {
  if ((inode.record.flags & kInodeOnDisk) == 0) return false;
  if (core.options.keep_by_default) return true;
  const Result<Treatment> treatment = core.knowledge.treatment(inode.number, inode.record);
  return !treatment.ok() || treatment->policy >= FilePolicy::kKeep;
}

Result<Verdict> judge(Core& core, Inode& inode, bool machine_crashed) {
  const InodeRecord& record = inode.record;
  if (record.state == DataState::kUnpublished) {
    if (record.previous_object == kNoObject) return Verdict::kDrop;
    const bool was_on_disk =
        record.previous_state == DataState::kSealed || (record.flags & kInodeOnDisk) != 0;
    return !machine_crashed || was_on_disk ? Verdict::kRestore : Verdict::kDrop;
  }
  Tier* tier = TRY(core.devices->of(inode));
  const Result<struct stat> backing = tier->status(record.object);
  if (!backing.ok()) {
    if (backing.error().code == ENOENT) return Verdict::kDrop;
    return backing.error();
  }
  if ((record.flags & kInodeFsynced) != 0 || (machine_crashed && is_kept_on_disk(core, inode)))
    return Verdict::kKeep;
  if (record.state == DataState::kPublished) {
    if (machine_crashed) return Verdict::kDrop;
    return stamp_of(*backing) == record.stamp ? Verdict::kKeep : Verdict::kDrop;
  }
  if (!machine_crashed) return Verdict::kKeep;
  const UniqueFd fd = TRY(tier->open(record.object, kOwnRead));
  return TRY(has_sealed_bytes(core, record.object, fd)) ? Verdict::kKeep : Verdict::kDrop;
}

// What the disk cannot read of one file is that file's matter: a mount that refused would keep all others away.
Verdict without_its_bytes(Core& core, const Inode& inode, const Error& error) {
  log_error("not readable after a crash inode={} errno={} step=\"{}\"", inode.number,
            error.code, error.what);
  const bool is_synced =
      (inode.record.flags & kInodeFsynced) != 0 || is_kept_on_disk(core, inode);
  return is_synced && inode.record.state != DataState::kUnpublished ? Verdict::kKeep
                                                                    : Verdict::kDrop;
}

// An inode that the reaper will remove.
Result<void> leave_unsealed(Core& core, InodeNumber number) {
  Edit edit;
  edit.set_frees();
  edit.remove_unsealed(number);
  return core.catalog.commit(std::move(edit));
}

// Every unsealed inode of the last run. Those kept stay unsealed: the sealer takes them.
Result<std::uint64_t> settle(Core& core, bool machine_crashed, std::uint64_t& dropped) {
  std::uint64_t kept = 0;
  InodeNumber after = 0;
  while (true) {
    const std::vector<InodeNumber> numbers =
        TRY(core.catalog.list_unsealed(after, kInodesAtOnce));
    if (numbers.empty()) return kept;
    after = numbers.back();
    for (const InodeNumber number : numbers) {
      Result<InodePtr> inode = core.table.get(number);
      if (!inode.ok()) {
        if (inode.error().code != ESTALE) return inode.error();
        TRY(leave_unsealed(core, number));
        continue;
      }
      Verdict verdict = Verdict::kDrop;
      const Result<Verdict> judged = judge(core, **inode, machine_crashed);
      if (judged.ok()) {
        verdict = *judged;
      } else if (is_bad_medium(judged.error().code)) {
        verdict = without_its_bytes(core, **inode, judged.error());
      } else if (judged.error().code != ENOENT) {
        return judged.error();
      }
      switch (verdict) {
        case Verdict::kKeep:
          ++kept;
          break;
        case Verdict::kRestore: {
          const std::lock_guard lock((*inode)->mutex);
          TRY(take_back_rewrite(core, **inode));
          if (is_unsealed((*inode)->record.state)) ++kept;
          ++dropped;
          break;
        }
        case Verdict::kDrop:
          TRY(drop_names(core, number, DropReason::kIncomplete));
          TRY(leave_unsealed(core, number));
          ++dropped;
          break;
      }
    }
  }
}

}  // namespace

Result<RecoveryReport> recover(Core& core, Reaper& reaper, std::string& problem) {
  const auto begin = std::chrono::steady_clock::now();
  RecoveryReport report;
  problem = "the state directory's database cannot be read: run kvcachefs fsck on it";
  const RunMarker last = TRY(core.catalog.run_marker());
  const RunMarker now = TRY(marker_of_now(tiers_of(core)));
  const bool another_boot = is_of_another_boot(last, now);
  const bool is_new = !TRY(core.catalog.find_inode(kRootInode));
  core.first_object = core.catalog.coming_id();
  TRY(core.knowledge.begin_time());
  core.started = file_clock_now();
  core.closed_from = is_new ? core.first_object : last.closed_from;
  if (is_new) {
    report.kind = "new";
    TRY(make_root(core));
  } else {
    report.kind = last.clean ? "clean" : another_boot ? "machine" : "daemon";
  }
  if (!is_new) {
    reaper.expect_orphans();
    const Result<std::optional<MachineCut>> cut = core.catalog.machine_cut();
    if (!cut.ok() && cut.error().code != EBADMSG) return cut.error();
    if (cut.ok() && *cut) core.cut = **cut;
    // There was one, and of what is not readable: all are judged.
    if ((another_boot && !last.clean) || !cut.ok()) {
      core.cut = {.before = core.first_object, .ended = file_clock_now()};
      core.is_first_since_cut = another_boot && !last.clean;
      TRY(core.catalog.set_machine_cut(core.cut));
    }
    const bool machine_crashed = another_boot && !last.clean;
    const std::uint64_t kept = TRY(settle(core, machine_crashed, report.dropped));
    if (!last.clean) reaper.expect_strays();
    core.counters.unsealed.store(kept);
  }
  problem = "the state directory cannot be written: is its disk full or read-only?";
  TRY(core.catalog.set_run_marker(now));
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  log_info("recovered kind={} dropped={} unsealed={} seconds={:.3f}", report.kind,
           report.dropped, core.counters.unsealed.load(), report.seconds);
  problem.clear();
  return report;
}

void has_looked_after_cut(Core& core) {
  if (core.cut.before == 0 || core.cut_looks_left.fetch_sub(1) != 1) return;
  if (!core.catalog.forget_machine_cut().ok())
    log_debug("the next start looks for what the crash left once more");
}

namespace {

// A sealed file that was stored to through a mapping since is one that was changed. False: it is
// not known of all.
Result<bool> take_unseen_stores(Core& core, bool& any) {
  if (!core.unseen.is_whole()) return false;
  for (const InodeNumber number : core.unseen.list()) {
    std::optional<InodeRecord> record = TRY(core.catalog.find_inode(number));
    if (!record || record->nlink == 0 || record->state != DataState::kSealed) continue;
    const Result<std::uint32_t> device = core.devices->index_of(record->object);
    if (!device.ok() || core.devices->state(*device) != DeviceState::kWell) return false;
    const Result<struct stat> backing = core.devices->status_of_copy(*device, record->object);
    if (!backing.ok() && backing.error().code == ENOENT) continue;
    if (!backing.ok()) return false;
    if (is_same_data(stamp_of(*backing), record->stamp)) continue;
    Edit edit;
    prepare_change(number, *record, edit);
    record->stamp = stamp_of(*backing);
    edit.put_inode(number, *record);
    TRY(core.catalog.commit(std::move(edit)));
    any = true;
  }
  return true;
}

}  // namespace

Result<void> mark_clean(Core& core, bool closed) {
  bool any_unseen = false;
  const bool is_known = closed && TRY(take_unseen_stores(core, any_unseen));
  // What there was no time to seal: the next start takes it as it is, also after a power cut.
  if (core.counters.unsealed.load() > 0 || any_unseen) {
    for (std::size_t i = 0; i < core.devices->count(); ++i)
      if (core.devices->state(core.devices->index_at(i)) == DeviceState::kWell)
        TRY(core.devices->tiers()[i]->sync());
  }
  RunMarker marker = TRY(marker_of_now(tiers_of(core)));
  marker.clean = true;
  // Of what older runs have left nothing is known where one of them did not end so.
  if (is_known) marker.closed_from = core.closed_from.value_or(core.first_object);
  return core.catalog.set_run_marker(marker);
}

}  // namespace kvcachefs
