#include "fs/life/recover.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>

#include "backend/base/log.h"
#include "backend/base/proc_status.h"
#include "fs/life/checksum.h"
#include "fs/life/drop.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kInodesAtOnce = 1024;

Result<std::string> mount_ids(Core& core) {
  std::string ids;
  for (const auto& tier : core.devices->tiers()) ids += TRY(tier->mount_identity()) + ";";
  return ids;
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

// Whether the file still is what its last seal's checksums say.
Result<bool> has_sealed_bytes(Core& core, Inode& inode) {
  const std::optional<ObjectRecord> object = TRY(core.catalog.find_object(inode.record.object));
  if (!object || object->sealed.ctime == 0) return false;
  if (object->chunk_crc32c.empty() && object->sealed.size != 0) return false;
  Tier* tier = TRY(core.devices->of(inode));
  const UniqueFd fd = TRY(tier->open(inode.record.object, O_RDONLY));
  struct stat now {};
  if (::fstat(fd.get(), &now) != 0) return fail_errno("status of a backing file");
  if (static_cast<std::uint64_t>(now.st_size) != object->sealed.size) return false;
  const std::vector<std::uint32_t> sums = TRY(checksum_file(fd.get(), object->sealed.size));
  return sums == object->chunk_crc32c;
}

enum class Verdict { kKeep, kDrop, kRestore };

Result<Verdict> judge(Core& core, Inode& inode, bool machine_crashed) {
  const InodeRecord& record = inode.record;
  if (record.state == DataState::kUnpublished) {
    if (record.previous_object == kNoObject) return Verdict::kDrop;
    return !machine_crashed || record.previous_state == DataState::kSealed ? Verdict::kRestore
                                                                           : Verdict::kDrop;
  }
  Tier* tier = TRY(core.devices->of(inode));
  const Result<struct stat> backing = tier->status(record.object);
  if (!backing.ok()) {
    if (backing.error().code == ENOENT) return Verdict::kDrop;
    return backing.error();
  }
  if ((record.flags & kInodeFsynced) != 0) return Verdict::kKeep;
  if (record.state == DataState::kPublished) {
    if (machine_crashed) return Verdict::kDrop;
    return stamp_of(*backing) == record.stamp ? Verdict::kKeep : Verdict::kDrop;
  }
  if (!machine_crashed) return Verdict::kKeep;
  return TRY(has_sealed_bytes(core, inode)) ? Verdict::kKeep : Verdict::kDrop;
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
  RunMarker now{.clean = false, .boot_id = boot_id(), .mount_ids = TRY(mount_ids(core))};
  // What a clean stop had no time to seal is not on the disk for certain either.
  const bool another_boot = last.boot_id != now.boot_id || last.mount_ids != now.mount_ids;
  const bool is_new = !TRY(core.catalog.find_inode(kRootInode));
  if (is_new) {
    report.kind = "new";
    TRY(make_root(core));
  } else {
    report.kind = last.clean ? "clean" : another_boot ? "machine" : "daemon";
  }
  if (!is_new) {
    reaper.expect_orphans();
    if (another_boot && !last.clean) core.cut_before = core.catalog.coming_id();
    const std::uint64_t kept = TRY(settle(core, another_boot, report.dropped));
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

Result<void> mark_clean(Core& core) {
  return core.catalog.set_run_marker(
      RunMarker{.clean = true, .boot_id = boot_id(), .mount_ids = TRY(mount_ids(core))});
}

}  // namespace kvcachefs
