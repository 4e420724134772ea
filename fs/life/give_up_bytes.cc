#include "fs/life/give_up_bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "backend/base/log.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

// An object that is to be cut, and its length then.
struct Cut {
  Tier* tier = nullptr;
  ObjectId object = kNoObject;
  std::uint64_t size = 0;
};

// Its name goes with its bytes. The caller holds the lock, as of the next.
bool is_new(const Inode& inode) noexcept {
  return inode.record.state == DataState::kUnpublished && inode.record.nlink > 0;
}

// nullopt: there is nothing to be cut.
Result<std::optional<Cut>> find_cut(Core& core, Inode& inode) {
  const bool keeps_some = inode.record.nlink > 0 && !is_new(inode);
  const Cut cut{.tier = TRY(core.devices->of(inode)),
                .object = inode.record.object,
                .size = keeps_some ? inode.record.stamp.size : 0};
  const struct stat backing = TRY(cut.tier->status(cut.object));
  if (cut.size >= static_cast<std::uint64_t>(backing.st_size)) return std::optional<Cut>{};
  return std::optional{cut};
}

// The caller does not hold the lock.
Result<void> make(Core& core, Inode& inode, const Cut& cut) {
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
  return {};
}

}  // namespace

Result<bool> give_up_bytes(Core& core, Inode& inode, int code) {
  std::optional<Cut> cut;
  {
    const std::lock_guard lock(inode.mutex);
    if (inode.writers == 0 || !inode.device || core.devices->stalled(*inode.device) != 0)
      return false;
    cut = TRY(find_cut(core, inode));
    if (!cut) return false;
    if (!is_new(inode)) {
      inode.lost_errno.store(code);
    } else if ((inode.record.flags & kInodePoisoned) == 0) {
      TRY(poison(core, inode, code));
    }
  }
  TRY(make(core, inode, *cut));
  return true;
}

Result<void> check_given_up(Core& core, Inode& inode) {
  if (inode.lost_errno.load(std::memory_order_relaxed) == 0) return {};
  const int code = inode.lost_errno.exchange(0);
  if (code == 0) return {};
  std::optional<Cut> cut;
  {
    const std::lock_guard lock(inode.mutex);
    // Somebody has begun to write it anew: what was lost is not what it has now.
    if (!is_new(inode)) cut = TRY(find_cut(core, inode));
  }
  if (cut) TRY(make(core, inode, *cut));
  return fail(code, "it had more than it may have");
}

}  // namespace kvcachefs
