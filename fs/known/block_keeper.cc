#include "fs/known/block_keeper.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "backend/base/log.h"
#include "fs/known/block_number.h"
#include "fs/known/knowledge.h"
#include "fs/life/states.h"
#include "fs/pool/queued_directory.h"

namespace kvcachefs {
namespace {

constexpr std::chrono::minutes kWriteEvery{1};
// Rows at a time: an iterator over all of them would hold back the database's cleaning.
constexpr std::size_t kRowBatch = 4096;
constexpr std::size_t kWriteBatch = 1024;
constexpr std::size_t kListBatch = 256;
// Of what reading names anew took: it rests so long before the next time, and costs the users
// of other directories a quarter of one CPU at most, however often somebody renames his.
constexpr int kRest = 3;
constexpr std::chrono::seconds kLongestRest{60};
// Paths have 4096 bytes.
constexpr std::size_t kDeepest = 2048;

}  // namespace

void BlockKeeper::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "kv-blocks");
}

void BlockKeeper::stop() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void BlockKeeper::wake() {
  {
    const std::lock_guard lock(mutex_);
    unread_ = true;
    core_.knowledge.set_behind(true);
  }
  changed_.notify_one();
}

bool BlockKeeper::ending() {
  const std::lock_guard lock(mutex_);
  return ending_;
}

void BlockKeeper::run() {
  restore();
  bool again = true;  // what the last run has left to read
  using Clock = std::chrono::steady_clock;
  Clock::time_point rests_until{};
  while (true) {
    if (again && Clock::now() >= rests_until) {
      const Clock::time_point begin = Clock::now();
      const Result<bool> is_all_read = read_anew();
      const Clock::duration took = Clock::now() - begin;
      again = !is_all_read.ok() || !*is_all_read;
      rests_until = begin + took;
      rests_until += is_all_read.ok() ? std::min<Clock::duration>(took * kRest, kLongestRest)
                                      : Clock::duration(kWriteEvery);
      // Whose the files of these names are was noted before the learner knew the names.
      if (core_.knowledge.tenants().had_any() && core_.on_policy_told) core_.on_policy_told();
    }
    bool end = false;
    {
      std::unique_lock lock(mutex_);
      if (!again && !unread_) core_.knowledge.set_behind(false);
      if (again) {
        changed_.wait_until(lock, rests_until, [this] { return ending_; });
      } else {
        changed_.wait_for(lock, kWriteEvery, [this] { return ending_ || unread_; });
      }
      if (std::exchange(unread_, false)) again = true;
      end = ending_;
    }
    const bool has_heard = core_.knowledge.take_heard();
    if (has_heard) write_order();
    write_();
    if (const Result<void> kept = core_.knowledge.keep_time(has_heard || end); !kept.ok())
      log_warn("the mount's own time was not written errno={}", kept.error().code);
    if (end) return;
  }
}

// ---- the order

void BlockKeeper::restore() {
  order::Learner& learner = core_.knowledge.learner();
  std::optional<std::uint64_t> after;
  std::uint64_t rows = 0;
  while (!ending()) {
    std::size_t count = 0;
    const Result<void> walked = core_.catalog.each_block(
        after,
        [&](std::uint64_t block, const BlockRecord& record) {
          if (record.birth == 0 && record.stamp == 0) {
            // Published in the last minute before a crash, or since this start.
            core_.knowledge.stored(block);
          } else {
            learner.restore(block, snapshot_in(record), core_.knowledge.now());
          }
          after = block;
          return ++count < kRowBatch;
        },
        [](const std::string& what) {
          log_error("{} does not read: run kvcachefs fsck", what);
        });
    rows += count;
    if (!walked.ok()) {
      log_error("order_not_restored errno={} effect=\"blocks count as new\"",
                walked.error().code);
      break;
    }
    if (count < kRowBatch) break;
  }
  learner.restored();
  if (rows > 0) log_info("order event=restored blocks={}", rows);
}

void BlockKeeper::write_order() {
  order::Learner& learner = core_.knowledge.learner();
  std::uint64_t failed = 0;
  while (true) {
    const order::ChangedBatch batch = learner.take_changed(kWriteBatch);
    for (const order::Changed& changed : batch.changed) {
      if (!write_one(changed.name, changed.snapshot).ok()) ++failed;
    }
    if (!batch.more && batch.changed.empty()) break;
  }
  // Most likely a full disk. The order is a hint: what was not written is learned again.
  if (failed > 0) log_warn("order_not_written blocks={}", failed);
}

Result<void> BlockKeeper::write_one(std::uint64_t block, const order::Snapshot& snapshot) {
  const std::optional<BlockRecord> seen = TRY(core_.catalog.find_block(block));
  if (!seen) return forget_gone(block, 0);
  Result<InodePtr> inode = core_.table.get(seen->inode);
  if (!inode.ok() && inode.error().code == ESTALE) return forget_gone(block, seen->inode);
  if (!inode.ok()) return inode.error();
  std::unique_lock lock((*inode)->mutex);
  if ((*inode)->record.nlink == 0) {
    lock.unlock();
    return forget_gone(block, seen->inode);
  }
  if (snapshot_in(*seen) == snapshot) return {};
  std::optional<BlockRecord> record = TRY(core_.catalog.find_block(block));
  if (!record || record->inode != seen->inode) return {};  // the next round finds it
  store_snapshot(*record, snapshot);
  Edit edit;
  edit.put_block(block, *record);
  return core_.catalog.commit(std::move(edit));
}

// The learner hears of calls after their commits: of a lookup, or a first close, sometimes after the
// name has gone. `inode`: the removed one whose row stands still, 0: there was no row.
Result<void> BlockKeeper::forget_gone(std::uint64_t block, InodeNumber inode) {
  core_.knowledge.removed(block);
  // And perhaps come again.
  const auto row = TRY(core_.catalog.find_block(block));
  if (row && row->inode != inode) core_.knowledge.stored(block);
  return {};
}

// ---- names read anew

// Each directory that is noted gets its turn, however often another one is noted meanwhile.
Result<bool> BlockKeeper::read_anew() {
  InodeNumber after = 0;
  while (!ending()) {
    for (const InodeNumber directory : core_.knowledge.take_late()) {
      if (const Result<void> read = read_names(directory); !read.ok()) {
        log_warn("names_not_read directory={} errno={}", directory, read.error().code);
        core_.knowledge.add_late(directory);
        return read.error();
      }
    }
    const auto directories = TRY(core_.catalog.list_unread(after, 1));
    // The rest was noted while it was read.
    if (directories.empty()) return TRY(core_.catalog.list_unread(0, 1)).empty();
    after = directories.front();
    if (const Result<void> read = read_noted(after); !read.ok()) {
      log_warn("names_not_read directory={} errno={}", after, read.error().code);
      return read.error();
    }
  }
  return false;
}

Result<void> BlockKeeper::read_noted(InodeNumber top) {
  const Result<InodePtr> inode = core_.table.get(top);
  if (!inode.ok() && inode.error().code != ESTALE) return inode.error();
  const auto times = [&] {
    return inode.ok() ? (*inode)->times_unread.load(std::memory_order_relaxed) : 0;
  };
  const std::uint32_t before = times();
  TRY(read_tree(top));
  if (ending()) return {};
  // A change that notes it once more holds its lock. Another change is noted at the directory
  // that it moved: above this one, or below it.
  std::unique_lock<InodeMutex> lock;
  if (inode.ok()) lock = std::unique_lock((*inode)->mutex);
  if (times() != before) return {};
  Edit edit;
  edit.set_frees();
  edit.remove_unread(top);
  return core_.catalog.commit(std::move(edit));
}

Result<void> BlockKeeper::read_tree(InodeNumber top) {
  struct Level {
    InodeNumber directory = 0;
    std::uint64_t after = 0;
    std::vector<DirEntry> entries = {};
    std::size_t next = 0;
  };
  std::vector<Level> levels{{.directory = top}};
  while (!levels.empty() && !ending()) {
    Level& level = levels.back();
    if (level.next == level.entries.size()) {
      level.entries =
          TRY(core_.catalog.list_directory(level.directory, level.after, kListBatch));
      level.next = 0;
      if (level.entries.empty()) level.entries = TRY(list_last(level.directory, level.after));
      if (level.entries.empty()) {
        levels.pop_back();
        continue;
      }
      level.after = level.entries.back().cookie;
    }
    const DirEntry& entry = level.entries[level.next++];
    if (entry.type == DT_REG) TRY(read_name(level.directory, entry));
    if (entry.type != DT_DIR) continue;
    TRY(put_to_publish(entry.inode));
    if (levels.size() < kDeepest) levels.push_back({.directory = entry.inode});
  }
  return {};
}

Result<void> BlockKeeper::read_names(InodeNumber directory) {
  std::uint64_t after = 0;
  while (true) {
    const std::vector<DirEntry> entries = TRY(list_last(directory, after));
    if (entries.empty()) return {};
    after = entries.back().cookie;
    for (const DirEntry& entry : entries) {
      if (entry.type == DT_REG) TRY(read_name(directory, entry));
    }
  }
}

// What came since: whoever makes a name holds the directory's lock, and knows of the change afterwards.
Result<std::vector<DirEntry>> BlockKeeper::list_last(InodeNumber directory,
                                                     std::uint64_t after) {
  const Result<InodePtr> inode = core_.table.get(directory);
  if (!inode.ok() && inode.error().code != ESTALE) return inode.error();
  std::unique_lock<InodeMutex> lock;
  if (inode.ok()) lock = std::unique_lock((*inode)->mutex);
  return core_.catalog.list_directory(directory, after, kListBatch);
}

// A directory that was renamed may have been a temporary: what is below one stays on this node.
Result<void> BlockKeeper::put_to_publish(InodeNumber number) {
  if (!core_.is_publishing) return {};
  const Result<InodePtr> found = core_.table.get(number);
  if (!found.ok()) return {};
  const InodePtr& inode = *found;
  const std::lock_guard lock(inode->mutex);
  const bool is_directory = inode->type == S_IFDIR;
  if ((!is_directory && inode->record.state != DataState::kSealed) ||
      inode->record.nlink == 0 || TRY(core_.catalog.find_pool_copy(inode->number)) ||
      TRY(core_.catalog.is_to_publish(inode->number)))
    return {};
  Edit edit;
  edit.put_to_publish(inode->number,
                      is_directory ? kQueuedDirectory : inode->record.stamp.size);
  TRY(core_.catalog.commit(std::move(edit)));
  if (core_.on_pool_work) core_.on_pool_work();
  return {};
}

Result<void> BlockKeeper::read_name(InodeNumber directory, const DirEntry& entry) {
  TRY(put_to_publish(entry.inode));
  const NameLook seen_now = core_.knowledge.look(directory, entry.name);
  const auto& block = seen_now.block;
  const bool is_block = block && !block->temporary;
  const std::uint64_t number = block_number(directory, entry.name);
  const std::optional<BlockRecord> seen = TRY(core_.catalog.find_block(number));
  if (!is_block && !seen) return {};
  if (is_block && seen && seen->inode == entry.inode && seen->hash == block->hash) return {};
  Result<InodePtr> inode = core_.table.get(entry.inode);
  if (!inode.ok()) return inode.error().code == ESTALE ? Result<void>{} : inode.error();
  // With the directory's lock, against the removal of rows that an earlier file of the name has left.
  const Result<InodePtr> holder = core_.table.get(directory);
  if (!holder.ok()) return holder.error().code == ESTALE ? Result<void>{} : holder.error();
  const LockedInodes locked({inode->get(), holder->get()});
  const auto dentry = TRY(core_.catalog.find_dentry(directory, entry.name));
  if (!dentry || dentry->inode != entry.inode) return {};  // who changed it wrote the rows
  Edit edit;
  const std::uint64_t gone =
      TRY(core_.knowledge.remove_rows_found(edit, directory, entry.name));
  if (is_block) core_.knowledge.put_rows(edit, directory, entry.name, entry.inode, seen_now);
  if (edit.empty()) return {};
  TRY(core_.catalog.commit(std::move(edit)));
  if (is_block) {
    core_.knowledge.stored(block->number);
  } else {
    core_.knowledge.removed(gone);
    put_in_order(core_, **inode);
  }
  return {};
}

}  // namespace kvcachefs
