#include "fs/life/give_up_bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "backend/base/log.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

// What is to be cut, and to what length.
struct Cut {
  Tier* tier = nullptr;
  ObjectId object = kNoObject;
  std::uint64_t size = 0;
};

// The caller holds the lock. nullopt: there is nothing to be cut.
Result<std::optional<Cut>> note_given_up(Core& core, Inode& inode, int code) {
  Cut cut{.tier = TRY(core.devices->of(inode)), .object = inode.record.object, .size = 0};
  const struct stat backing = TRY(cut.tier->status(cut.object));
  const bool has_name = inode.record.nlink > 0;
  const bool is_new = inode.record.state == DataState::kUnpublished;
  if (has_name && !is_new) cut.size = inode.record.stamp.size;
  if (cut.size >= static_cast<std::uint64_t>(backing.st_size)) return std::optional<Cut>{};
  if (!has_name || !is_new) {
    inode.lost_errno.store(code);
  } else if ((inode.record.flags & kInodePoisoned) == 0) {
    TRY(poison(core, inode, code));
  }
  return std::optional{cut};
}

}  // namespace

Result<bool> give_up_bytes(Core& core, Inode& inode, int code) {
  std::optional<Cut> found;
  {
    const std::lock_guard lock(inode.mutex);
    if (inode.writers == 0 || !inode.device || core.devices->stalled(*inode.device) != 0)
      return false;
    found = TRY(note_given_up(core, inode, code));
  }
  if (!found) return false;
  const Cut& cut = *found;
  const UniqueFd fd = TRY(cut.tier->open(cut.object, O_WRONLY));
  if (::ftruncate(fd.get(), static_cast<off_t>(cut.size)) != 0)
    return fail_errno("cut of a backing file");
  {
    const std::lock_guard lock(inode.mutex);
    if (inode.record.object == cut.object) {
      inode.allocated_end = std::min(inode.allocated_end, cut.size);
      core.budget.measured(inode, TRY(cut.tier->status(cut.object)));
    }
  }
  if (core.notifications != nullptr) core.notifications->invalidate_data(inode.number);
  return true;
}

}  // namespace kvcachefs
