#include "fs/pool/queue_bound.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "backend/base/log.h"
#include "fs/known/file_policy.h"
#include "fs/life/states.h"
#include "fs/pool/queued_directory.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

Result<void> QueueBound::keep() {
  const Clock::time_point now = Clock::now();
  if (now < next_) return {};
  const Result<void> kept = look();
  const Clock::time_point end = Clock::now();
  next_ = end + std::max<Clock::duration>(kBetween, 9 * (end - now));
  return kept;
}

Result<void> QueueBound::look() {
  const PoolOptions& options = core_.options.pool_options;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t skipped = 0;
  InodeNumber after = 0;
  while (true) {
    const std::vector<QueuedFile> batch = TRY(core_.catalog.list_queued(after, kBatch));
    for (const QueuedFile& file : batch) {
      if (file.size == kQueuedDirectory) continue;
      const bool is_too_much =
          !options.syncs && (files >= options.queue_files ||
                             (bytes > 0 && bytes + file.size > options.queue_bytes));
      if (is_too_much && TRY(skip(file.number))) {
        skipped_.fetch_add(1, std::memory_order_relaxed);
        ++skipped;
        continue;
      }
      ++files;
      bytes += file.size;
    }
    if (batch.size() < kBatch) break;
    after = batch.back().number;
  }
  files_.store(files);
  bytes_.store(bytes);
  if (skipped > 0 && !is_over_)
    log_warn(
        "pool: write-back is too far behind, blocks are skipped queued_files={} "
        "queued_bytes={}",
        files, bytes);
  is_over_ = skipped > 0;
  return {};
}

// False: it stays in the queue. What asks for its publication anew, a rename or a seal, has the inode's lock, too.
Result<bool> QueueBound::skip(InodeNumber number) {
  const Result<InodePtr> inode = core_.table.get(number);
  // The publisher finds that it has gone.
  if (!inode.ok()) return false;
  const auto shared = TRY(shared_name_of(core_.catalog, core_.knowledge, number));
  if (!shared || !shared->is_block) return false;
  if (TRY(note_policy(core_, **inode)).policy >= FilePolicy::kKeep) return false;
  const std::lock_guard lock((*inode)->mutex);
  const InodeRecord& record = (*inode)->record;
  if (record.state != DataState::kSealed || record.nlink == 0) return false;
  Edit edit;
  edit.set_frees();
  edit.remove_to_publish(number);
  TRY(core_.catalog.commit(std::move(edit)));
  put_off_.forget(number);
  return true;
}

}  // namespace kvcachefs
