#include "fs/pool/owner_teller.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/pool/pool_transfer.h"
#include "fs/acl/acl.h"
#include "fs/pool/at_once.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/pool_error.h"
#include "fs/pool/pool_options.h"

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
  const std::optional<std::uint32_t> mode = TRY(mode_to_tell(path, change));
  PoolOwner owner{.path = path,
                  .fileid = change.fileid,
                  .uid = change.uid,
                  .gid = change.gid,
                  .mode = mode,
                  .keep = change.keep,
                  .other_uid = core_.options.pool_options.owner_uid,
                  .other_gid = core_.options.pool_options.owner_gid,
                  .other_file_mode = kAdoptedFileMode,
                  .other_directory_mode = kAdoptedDirectoryMode,
                  .number = TRY(core_.catalog.next_id())};
  using Said = std::optional<PoolSums>;
  const Result<Said> told =
      service_.client().call<Said>(PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
                                   [owner = std::move(owner), node = service_.node()](
                                       PoolSession& session, Deadline deadline) {
                                     return change_owner(session, owner, node, deadline);
                                   });
  if (!told.ok()) {
    const Error& error = told.error();
    const auto noted = is_of_pool(error.code) ? PutOff::Noted::kFull
                                              : put_off_.note(path_hash, monotonic_now());
    if (noted == PutOff::Noted::kFull && !is_of_path(error.code)) return error;
    if (noted == PutOff::Noted::kFirst)
      log_warn("pool: owner not told yet path=\"{}\" step=\"{}\" errno={}", path, error.what,
               error.code);
    return false;
  }
  put_off_.forget(path_hash);
  if (*told)
    service_.tell({.change = PoolChange::kPublished,
                   .path_hash = path_hash,
                   .fileid = change.fileid,
                   .size = 0});
  // Another may have been given meanwhile.
  if (TRY(core_.catalog.find_owner_change(path)) != change ||
      TRY(mode_to_tell(path, change)) != mode)
    return false;
  Edit edit;
  edit.set_frees();
  edit.remove_owner_change(path);
  TRY(core_.catalog.commit(std::move(edit)));
  if (*told) take(path, **told);
  return true;
}

Result<std::optional<std::uint32_t>> OwnerTeller::mode_to_tell(const std::string& path,
                                                               const OwnerChange& change) {
  if (!change.mode) return change.mode;
  const std::uint64_t path_hash = pool_path_hash(path);
  for (const InodeNumber number :
       TRY(core_.catalog.list_by_fileid(change.fileid, kMostOfOneNumber))) {
    const auto copy = TRY(core_.catalog.find_pool_copy(number));
    if (!copy || copy->path_hash != path_hash) continue;
    const Result<InodePtr> inode = core_.table.get(number);
    if (!inode.ok()) continue;
    const std::lock_guard lock((*inode)->mutex);
    InodeRecord record = (*inode)->record;
    record.mode = *change.mode;
    return std::optional(TRY(mode_without_acl(core_.catalog, number, record)));
  }
  return change.mode;
}

// What another node has given of it in the meantime holds here, too.
void OwnerTeller::take(const std::string& path, const PoolSums& sums) {
  const auto numbers = core_.catalog.list_by_fileid(sums.fileid, kMostOfOneNumber);
  if (!numbers.ok()) return;
  const SharedName shared{.path = path, .path_hash = pool_path_hash(path)};
  for (const InodeNumber number : *numbers) {
    const Result<InodePtr> inode = core_.table.get(number);
    if (inode.ok() && !take_owner(core_, **inode, owner_of(**inode), shared, sums).ok())
      (*inode)->pool_checked.store(0);
  }
}

}  // namespace kvcachefs
