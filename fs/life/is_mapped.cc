#include "fs/life/is_mapped.h"

#include <cstddef>
#include <mutex>
#include <vector>

namespace kvcachefs {
namespace {

constexpr std::size_t kMostInLook = 1024;
// Some tenths of a millisecond, in a request.
constexpr std::size_t kMostInOpen = 64;

bool is_closed(const Inode& inode, ObjectId object) {
  return inode.record.object == object && inode.record.state == DataState::kSealed &&
         inode.opens == 0;
}

// Without the inode's lock, for which opens would wait.
bool may_be_mapped(Core& core, Inode& inode, ObjectId object) {
  std::uint32_t device = 0;
  {
    const std::unique_lock lock(inode.mutex, std::try_to_lock);
    if (!lock) return true;  // it is being changed: at the next look
    if (!is_closed(inode, object) || !core.devices->of(inode).ok()) return false;
    device = *inode.device;
  }
  const Result<bool> used = is_used(core, device, object);
  return !used.ok() || *used;  // what is not known, at the next look
}

// False: it is none any more, or whoever has it open counts it.
bool is_still_mapped(Core& core, const MappedFiles::File& file) {
  const Result<InodePtr> inode = core.table.get(file.inode);
  if (!inode.ok()) return false;
  // What counts as open has to be taken back under the lock.
  if (!file.is_known && !may_be_mapped(core, **inode, file.object)) return false;
  const std::unique_lock lock((*inode)->mutex, std::try_to_lock);
  if (!lock) return true;
  if (!is_closed(**inode, file.object)) return false;
  const InodeRecord& record = (*inode)->record;
  const Result<bool> mapped = is_mapped(core, **inode);
  if (!mapped.ok()) return true;  // at the next look
  const bool still = *mapped;
  if (!still && file.is_known) core.budget.let_go(**inode);
  // Another user may have had it open since.
  if (still) {
    if (const auto copy = core.budget.sealed_copy(**inode, record))
      core.budget.usage().opened(*copy);
    core.budget.mapped().set_known(file);
  }
  return still;
}

bool look_at(Core& core, const std::vector<MappedFiles::File>& files) {
  bool any_ended = false;
  for (const MappedFiles::File& file : files) {
    if (is_still_mapped(core, file)) continue;
    core.budget.mapped().remove(file);
    any_ended = true;
  }
  return any_ended;
}

}  // namespace

Result<bool> is_used(Core& core, std::uint32_t device, ObjectId object) {
  const Result<bool> used = core.devices->is_used(device, object);
  if (!used.ok() && used.error().code != EBUSY) return false;
  return used;
}

Result<bool> is_mapped(Core& core, Inode& inode) {
  if (!core.passthrough() || !core.devices->of(inode).ok()) return false;
  const std::uint32_t device = *inode.device;
  if (!TRY(is_used(core, device, inode.record.object))) return false;
  if (inode.backing_id == 0) return true;
  // That may be the id for the kernel's opens: the descriptor of who made the file.
  core.backing_ids->close(inode.backing_id);
  inode.backing_id = 0;
  return is_used(core, device, inode.record.object);
}

void note_mapped(Core& core, const SealedCopy& copy, InodeNumber inode) {
  core.budget.usage().opened(copy);
  core.budget.mapped().add({.inode = inode, .object = copy.object, .is_known = true}, {});
}

void look_at_mapped(Core& core) {
  look_at(core, core.budget.mapped().next(kMostInLook));
  Usage& usage = core.budget.usage();
  for (const auto& [number, object] : usage.still_leaving())
    if (core.table.find(number) != nullptr) usage.mapped(object);
}

bool look_at_mapped_of(Core& core, uid_t user) {
  return look_at(core, core.budget.mapped().next_of(user, kMostInOpen));
}

}  // namespace kvcachefs
