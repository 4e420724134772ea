#include "fs/pool/owner_teller.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/pool/pool_directory.h"
#include "backend/pool/pool_transfer.h"
#include "fs/pool/at_once.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/pool_error.h"
#include "fs/pool/pool_options.h"
#include "fs/pool/told_words.h"

namespace kvcachefs {

using SteadyClock = std::chrono::steady_clock;

Result<bool> OwnerTeller::tell_all(const std::function<bool()>& is_stopping) {
  std::string after;
  std::mutex mutex;  // of the next two
  bool all = true;
  Error failed{0, ""};
  while (!is_stopping()) {
    const auto batch = TRY(core_.catalog.list_owner_changes(after, kBatch));
    if (batch.empty()) return all;
    after = batch.back().first;
    std::atomic<std::size_t> next{0};
    at_once(std::min(kAtOnce, batch.size()), [&] {
      for (std::size_t at = next++; at < batch.size() && !is_stopping(); at = next++) {
        const Result<bool> told = tell(batch[at].first, batch[at].second);
        const std::lock_guard lock(mutex);
        all = all && told.ok() && *told;
        if (!told.ok()) failed = told.error();
        if (failed.code != 0) return;
      }
    });
    if (failed.code != 0) return failed;
  }
  return false;
}

Result<bool> OwnerTeller::tell(const std::string& path, const OwnerChange& change) {
  const std::uint64_t path_hash = pool_path_hash(path);
  if (put_off_.holds(path_hash, monotonic_now())) return false;
  const InodePtr inode = TRY(inode_of(path, change.fileid));
  const Owner asked = inode != nullptr ? owner_of(*inode) : Owner{};
  PoolOwner owner{.path = path,
                  .fileid = change.fileid,
                  .uid = change.uid,
                  .gid = change.gid,
                  .mode = change.mode,
                  .keep = change.keep,
                  .other_uid = core_.options.pool_options.owner_uid,
                  .other_gid = core_.options.pool_options.owner_gid,
                  .other_file_mode = kAdoptedFileMode,
                  .other_directory_mode = kAdoptedDirectoryMode,
                  .number = TRY(core_.catalog.next_id())};
  PoolTelling telling{.path = path,
                      .fileid = change.fileid,
                      .words = TRY(words_of(inode, change)),
                      .number = owner.number};
  const std::vector<PoolWord> words = telling.words;
  const std::vector<PoolWord> asked_words =
      inode != nullptr ? TRY(all_told(core_, *inode)) : std::vector<PoolWord>{};
  struct Said {
    std::optional<PoolSums> owner;
    std::optional<PoolTold> told;
  };
  const bool is_owner = change != OwnerChange{.fileid = change.fileid, .told = change.told};
  const Result<Said> told = service_.client().call<Said>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [owner = std::move(owner), telling = std::move(telling), is_owner,
       node = service_.node()](PoolSession& session, Deadline deadline) -> Result<Said> {
        Said said;
        if (is_owner) said.owner = TRY(change_owner(session, owner, node, deadline));
        if (!telling.words.empty())
          said.told = TRY(tell_directory(session, telling, node, deadline));
        return said;
      });
  if (!told.ok()) {
    const Error& error = told.error();
    const auto noted = is_of_pool(error.code) ? PutOff::Noted::kFull
                                              : put_off_.note(path_hash, monotonic_now());
    if (noted == PutOff::Noted::kFull && !is_of_path(error.code)) return error;
    if (noted == PutOff::Noted::kFirst)
      log_warn(
          "pool: an owner, or what a directory is told, is not there yet path=\"{}\" "
          "step=\"{}\" errno={}",
          path, error.what, error.code);
    return false;
  }
  put_off_.forget(path_hash);
  if (told->owner || told->told)
    service_.tell({.change = PoolChange::kPublished,
                   .path_hash = path_hash,
                   .fileid = change.fileid,
                   .size = 0});
  if (!TRY(forget(path, change, inode, words))) return false;
  // What another node has given of it in the meantime, or told it, holds here, too.
  const SharedName shared{.path = path, .path_hash = path_hash};
  if (inode == nullptr) return true;
  if ((told->owner && !take_owner(core_, *inode, asked, shared, *told->owner).ok()) ||
      (told->told &&
       !take_told(core_, *inode, shared, change.fileid, asked_words, told->told).ok()))
    inode->pool_checked.store(0);
  return true;
}

Result<std::vector<PoolWord>> OwnerTeller::words_of(const InodePtr& inode,
                                                    const OwnerChange& change) {
  if (inode == nullptr || change.told == 0) return std::vector<PoolWord>{};
  return told_words(core_, inode->number, change.told);
}

// Null: it is gone.
Result<InodePtr> OwnerTeller::inode_of(const std::string& path, std::uint64_t fileid) {
  for (const InodeNumber number : TRY(core_.catalog.list_by_fileid(fileid, kMostOfOneNumber))) {
    const auto copy = TRY(core_.catalog.find_pool_copy(number));
    if (!copy || copy->path_hash != pool_path_hash(path)) continue;
    Result<InodePtr> inode = core_.table.get(number);
    if (inode.ok() || inode.error().code != ESTALE) return inode;
  }
  return InodePtr{};
}

// It was told. False: another has been given meanwhile, by who had the inode's lock.
Result<bool> OwnerTeller::forget(const std::string& path, const OwnerChange& change,
                                 const InodePtr& inode, const std::vector<PoolWord>& words) {
  std::unique_lock<InodeMutex> lock;
  if (inode != nullptr) lock = std::unique_lock(inode->mutex);
  if (TRY(core_.catalog.find_owner_change(path)) != change) return false;
  if (TRY(words_of(inode, change)) != words) return false;
  Edit edit;
  edit.set_frees();
  edit.remove_owner_change(path);
  TRY(core_.catalog.commit(std::move(edit)));
  return true;
}

}  // namespace kvcachefs
