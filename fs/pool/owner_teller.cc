#include "fs/pool/owner_teller.h"

#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/pool/pool_transfer.h"
#include "fs/pool/pool_error.h"

namespace kvcachefs {

using SteadyClock = std::chrono::steady_clock;

Result<bool> OwnerTeller::tell_all(const std::function<bool()>& is_stopping) {
  bool all = true;
  std::string after;
  while (!is_stopping()) {
    const auto batch = TRY(core_.catalog.list_owner_changes(after, kBatch));
    if (batch.empty()) return all;
    after = batch.back().first;
    for (const auto& [path, change] : batch) {
      if (is_stopping()) return false;
      if (!TRY(tell(path, change))) all = false;
    }
  }
  return false;
}

Result<bool> OwnerTeller::tell(const std::string& path, const OwnerChange& change) {
  const std::uint64_t path_hash = pool_path_hash(path);
  if (put_off_.holds(path_hash, monotonic_now())) return false;
  PoolOwner owner{.path = path,
                  .fileid = change.fileid,
                  .uid = change.uid,
                  .gid = change.gid,
                  .mode = change.mode,
                  .number = TRY(core_.catalog.next_id())};
  const Result<bool> told =
      service_.client().call<bool>(PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
                                   [owner = std::move(owner), node = service_.node()](
                                       PoolSession& session, Deadline deadline) {
                                     return change_owner(session, owner, node, deadline);
                                   });
  if (!told.ok()) {
    const Error& error = told.error();
    const auto noted = is_of_pool(error.code) ? PutOff::Noted::kFull
                                              : put_off_.note(path_hash, monotonic_now());
    if (noted == PutOff::Noted::kFull) return error;
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
  if (TRY(core_.catalog.find_owner_change(path)) != change) return false;
  Edit edit;
  edit.set_frees();
  edit.remove_owner_change(path);
  TRY(core_.catalog.commit(std::move(edit)));
  return true;
}

}  // namespace kvcachefs
