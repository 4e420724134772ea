#include "fs/pool/sync_on_pool.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include "fs/known/place.h"
#include "fs/life/states.h"
#include "fs/node/closing.h"
#include "fs/pool/shared_name.h"
#include "fs/pool/unflushed.h"

namespace kvcachefs {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{200};

// Files that are still to come.
struct Left {
  std::uint64_t closed = 0;
  std::uint64_t closing = 0;
};

Result<Left> left_of_file(Core& core, Inode& inode) {
  const auto shared = TRY(shared_name_of(core.catalog, core.knowledge, inode.number));
  if (!shared) return Left{};
  {
    const std::lock_guard lock(inode.mutex);
    if (inode.record.nlink == 0) return Left{};
    const WrittenBy by = written_by(inode);
    if (by == WrittenBy::kSomebody) return Left{};
    if (by == WrittenBy::kClosing) return Left{.closing = 1};
    if (is_unsealed(inode.record.state)) return Left{.closed = 1};
  }
  const bool is_to_come = TRY(core.catalog.is_to_publish(inode.number));
  return Left{.closed = is_to_come ? std::uint64_t{1} : 0};
}

Result<Left> left_below(Core& core, InodeNumber directory, InodeNumber& before) {
  const auto place = core.knowledge.places().of(directory);
  if (!place.ok()) return place.error();
  if (*place == nullptr) return Left{};
  if (before == 0) before = core.catalog.coming_id();
  const Unflushed left = TRY(count_unflushed(core, (*place)->path, before));
  return Left{.closed = left.files + left.directories + left.removed + (left.more ? 1 : 0),
              .closing = left.closing};
}

}  // namespace

Result<void> sync_on_pool(Core& core, InodeNumber number, Clock::time_point called,
                          const PoolSync& sync) {
  const InodePtr inode = TRY(core.table.get(number));
  const bool is_file = inode->is_file();
  Clock::time_point end = called + kPoolSyncPatience;
  if (is_file) {
    const std::lock_guard lock(inode->mutex);
    end += std::chrono::seconds(inode->record.stamp.size / kSlowestPublication);
  }
  std::chrono::milliseconds pause = kFirstPause;
  Clock::time_point hurried = {};
  std::uint64_t last = 0;
  InodeNumber before = 0;
  while (true) {
    const Left found =
        is_file ? TRY(left_of_file(core, *inode)) : TRY(left_below(core, number, before));
    const Clock::time_point now = Clock::now();
    const std::uint64_t left = found.closed + (now - called < kCloseTakes ? found.closing : 0);
    if (left == 0) return {};
    if (!sync.is_up()) return fail(EIO, "pool-sync: the pool is down");
    if (left < last) end = std::min(now + kPoolSyncPatience, called + kLongestPoolSync);
    last = left;
    if (now >= end) return fail(EIO, "pool-sync: not on the pool in time");
    if (sync.gives_up()) return fail(EIO, "pool-sync: the mount ends");
    if (now - hurried > kLongestPause) {
      sync.hurry();
      hurried = now;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace kvcachefs
