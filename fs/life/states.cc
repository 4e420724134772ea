#include "fs/life/states.h"

#include <optional>
#include <utility>

#include "backend/base/log.h"
#include "fs/node/attributes.h"

namespace kvcachefs {

void enter_state(InodeNumber number, InodeRecord& record, DataState state, Edit& edit) {
  const bool was = is_unsealed(record.state);
  const bool is = is_unsealed(state);
  record.state = state;
  if (!was && is) edit.put_unsealed(number);
  if (was && !is) edit.remove_unsealed(number);
}

void count_unsealed(Core& core, DataState before, DataState after) noexcept {
  if (is_unsealed(after) && !is_unsealed(before))
    core.counters.unsealed.fetch_add(1, std::memory_order_relaxed);
  if (!is_unsealed(after) && is_unsealed(before))
    core.counters.unsealed.fetch_sub(1, std::memory_order_relaxed);
}

namespace {

// A file that was stored as cache, and whose directory was told to keep it later, stays as far
// as there is room for it beside what others' shares promise them; what the file itself was
// told, or its application, was refused where it did not fit. What is not sealed was let in by
// its close. The caller holds the lock.
bool may_stay(Core& core, Inode& inode, const Treatment& treatment) {
  const bool is_told_above =
      treatment.by != PolicyBy::kFile && treatment.by != PolicyBy::kApplication;
  // No close has asked for what lives with its process.
  const bool is_process = treatment.policy == FilePolicy::kProcess;
  const bool is_let_in = !is_process && (!is_told_above || is_unsealed(inode.record.state));
  const bool is_to_decide =
      treatment.is_kept() && !is_let_in && core.knowledge.tenants().had_any();
  if (!is_to_decide) return true;
  // Until all that the last run has left is counted it is as that run had it: nobody's promise
  // is broken by a start.
  if (!core.budget.usage().is_complete()) return true;
  return core.budget.usage().is_counted_kept(inode.record.object) ||
         core.budget.check_staying(treatment.tenant, inode.record.stamp.size).ok();
}

}  // namespace

bool stays_as_cache(Core& core, const InodeRecord& record, const Treatment& treatment) {
  const Usage& usage = core.budget.usage();
  return treatment.is_kept() && record.state == DataState::kSealed &&
         core.knowledge.tenants().had_any() && usage.is_complete() &&
         !usage.is_counted_kept(record.object);
}

Result<Treatment> note_policy(Core& core, Inode& inode, bool* is_block) {
  InodeRecord record;
  {
    const std::lock_guard lock(inode.mutex);
    record = inode.record;
  }
  Treatment treatment = TRY(core.knowledge.treatment(inode.number, record, is_block));
  TRY(core.knowledge.grouped(inode.number, treatment.tenant));
  const std::lock_guard lock(inode.mutex);
  if (!may_stay(core, inode, treatment)) treatment.policy = FilePolicy::kCache;
  inode.kept = treatment.is_kept();
  inode.tenant.store(treatment.tenant, std::memory_order_relaxed);
  core.budget.noted(inode);
  return treatment;
}

void put_in_order(Core& core, const Inode& inode) {
  if (core.knowledge.is_stored_block(inode.number, inode.block.load(std::memory_order_relaxed)))
    return;
  core.budget.stored(inode.number, inode.record.stamp.mtime, inode.record.object,
                     inode.tenant.load(std::memory_order_relaxed));
}

void store_record(Core& core, Inode& inode, InodeRecord&& next) {
  const InodeRecord before = inode.set_record(std::move(next));
  count_unsealed(core, before.state, inode.record.state);
  core.budget.changed(inode, before);
}

Result<void> commit_record(Core& core, Inode& inode, InodeRecord&& next, Edit&& edit,
                           Lend lend) {
  edit.put_inode(inode.number, next);
  {
    std::optional<Lent> lent;
    if (lend == Lend::kYes) lent.emplace(inode.mutex);
    TRY(core.catalog.commit(std::move(edit)));
  }
  store_record(core, inode, std::move(next));
  return {};
}

Result<void> prepare_publication(Core& core, InodeNumber number, InodeRecord& record,
                                 const struct stat& backing, Edit& edit) {
  record.stamp = stamp_of(backing);
  if (record.state != DataState::kUnpublished) return {};
  enter_state(number, record, DataState::kPublished, edit);
  record.flags &= ~std::uint32_t{kInodeOnDisk};
  return let_go_of_previous(core, record, edit);
}

Result<void> unmark_on_disk(Core& core, Inode& inode) {
  if ((inode.record.flags & kInodeOnDisk) == 0) return {};
  InodeRecord next = inode.record;
  next.flags &= ~std::uint32_t{kInodeOnDisk};
  Edit edit;
  edit.set_frees();
  return commit_record(core, inode, std::move(next), std::move(edit));
}

Result<void> let_go_of_previous(Core& core, InodeRecord& record, Edit& edit) {
  if (record.previous_object == kNoObject) return {};
  const std::uint32_t device = TRY(core.devices->index_of(record.previous_object));
  edit.remove_object(record.previous_object, device);
  edit.put_orphan_object(record.previous_object, device);
  record.previous_object = kNoObject;
  record.previous_state = DataState::kNone;
  record.flags &= ~std::uint32_t{kInodeMayGrow};
  return {};
}

void prepare_change(InodeNumber number, InodeRecord& record, Edit& edit) {
  if (record.state != DataState::kPublished && record.state != DataState::kSealed) return;
  enter_state(number, record, DataState::kMutable, edit);
}

Result<void> begin_change(Core& core, Inode& inode, Change change) {
  InodeRecord next = inode.record;
  Edit edit;
  prepare_change(inode.number, next, edit);
  if (change != Change::kWrite) edit.set_frees();
  const bool was_sealed = inode.record.state == DataState::kSealed;
  TRY(commit_record(core, inode, std::move(next), std::move(edit)));
  if (!was_sealed) return {};
  // A power cut must not find bytes changed under a record that still says "sealed".
  inode.change_unsynced = true;
  if (core.on_sync_wanted) core.on_sync_wanted();
  return {};
}

Result<void> take_back_rewrite(Core& core, Inode& inode) {
  InodeRecord next = inode.record;
  Edit edit;
  edit.set_frees();
  const std::uint32_t device = TRY(core.devices->index_of(next.object));
  edit.remove_object(next.object, device);
  edit.put_orphan_object(next.object, device);
  next.object = next.previous_object;
  next.previous_object = kNoObject;
  next.flags &= ~kInodePoisoned;
  enter_state(inode.number, next, next.previous_state, edit);
  next.previous_state = DataState::kNone;
  inode.device.reset();
  return commit_record(core, inode, std::move(next), std::move(edit));
}

Result<bool> take_back_failed(Core& core, Inode& inode) {
  const bool has_failed = inode.is_going() && !inode.evicting;
  if (!has_failed || inode.opens > 0 || inode.record.previous_object == kNoObject) return false;
  const ObjectId object = inode.record.object;
  TRY(take_back_rewrite(core, inode));
  if (inode.is_abandoned()) {
    log_info(
        "abandoned inode={} object={}: its writer ended without closing it, what it replaced "
        "is "
        "back",
        inode.number, object);
    inode.write_errno = EIO;
  } else {
    log_error(
        "poisoned inode={} object={} errno={}: it was not written in full, what it replaced is "
        "back",
        inode.number, object, inode.write_errno);
    core.counters.poisoned.fetch_add(1, std::memory_order_relaxed);
  }
  if (core.on_orphan_object) core.on_orphan_object();
  // Its writer's bytes may be in the kernel's pages.
  if (core.notifications != nullptr) core.notifications->invalidate_data(inode.number);
  return true;
}

Result<void> take_back_if_failed(Core& core, Inode& inode) {
  {
    const auto lock = TRY(lock_to_look(inode));
    if (!inode.is_going() || inode.evicting) return {};
  }
  if (refuses_to_wait()) return fail(kMustWait, "a rewrite is to be taken back");
  const std::lock_guard lock(inode.mutex);
  const Result<bool> taken = take_back_failed(core, inode);
  return taken.ok() ? Result<void>{} : Result<void>(taken.error());
}

Result<void> check_written(const Inode& inode) {
  if ((inode.record.flags & kInodePoisoned) == 0) return {};
  return fail(inode.write_errno, "its writing failed");
}

Result<void> poison(Core& core, Inode& inode, int code) {
  if ((inode.record.flags & kInodePoisoned) == 0) inode.write_errno = code;
  InodeRecord next = inode.record;
  next.flags |= kInodePoisoned;
  Edit edit;
  edit.set_frees();
  return commit_record(core, inode, std::move(next), std::move(edit));
}

namespace {

// The kernel writes most files without us: where the disk below was all but full meanwhile, a write
// may have failed that nobody heard of.
Result<void> note_danger(Core& core, Inode& inode) {
  if (inode.record.state != DataState::kUnpublished || inode.danger_at_open == 0 ||
      !inode.device || core.budget.danger(*inode.device) == inode.danger_at_open ||
      (inode.record.flags & kInodePoisoned) != 0)
    return {};
  TRY(poison(core, inode, ENOSPC));
  log_error("poisoned inode={}: its disk was all but full while it was written", inode.number);
  return fail(ENOSPC, "the disk was all but full");
}

}  // namespace

Result<void> check_publishable(Core& core, Inode& inode) {
  TRY(note_danger(core, inode));
  const bool is_refused = inode.refused_object.load() == inode.record.object;
  if (inode.record.state == DataState::kUnpublished && is_refused)
    TRY(poison(core, inode, EIO));
  return check_written(inode);
}

Result<void> publish_locked(Core& core, Inode& inode, std::uint32_t marks) {
  if (!is_unsealed(inode.record.state)) return {};
  Tier* tier = TRY(core.devices->of(inode));
  const struct stat backing = TRY(tier->status(inode.record.object));
  core.budget.measured(inode, backing);
  const bool first = inode.record.state == DataState::kUnpublished;
  const bool is_marked = (inode.record.flags & marks) == marks;
  if (!first && is_marked && inode.record.stamp == stamp_of(backing)) return {};
  TRY(check_publishable(core, inode));
  InodeRecord next = inode.record;
  Edit edit;
  const bool replaces = next.previous_object != kNoObject;
  TRY(prepare_publication(core, inode.number, next, backing, edit));
  next.flags |= marks;
  TRY(commit_record(core, inode, std::move(next), std::move(edit), Lend::kYes));
  if (replaces && core.on_orphan_object) core.on_orphan_object();
  return {};
}

}  // namespace kvcachefs
