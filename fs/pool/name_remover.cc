#include "fs/pool/name_remover.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/pool/pool_directory.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_trash.h"
#include "fs/pool/at_once.h"
#include "fs/pool/pool_error.h"

namespace kvcachefs {

using SteadyClock = std::chrono::steady_clock;

namespace {

// What was taken away.
struct Gone {
  std::uint64_t fileid = 0;  // 0: nothing that others need to hear of
  std::uint64_t bytes = 0;   // that went into the trash
};

}  // namespace

Result<WorkLeft> NameRemover::step(const std::function<bool()>& is_stopping) {
  auto batch = TRY(core_.catalog.list_tombstones(walk_.after(), kBatch));
  if (batch.empty()) return walk_.ended();
  walk_.met(batch.back().first);
  const auto at = std::partition(batch.begin(), batch.end(),
                                 [](const auto& row) { return !row.second.is_directory; });
  const auto files = static_cast<std::size_t>(at - batch.begin());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // of `failed` and walk_
  Error failed{0, ""};
  // False: others would fare as badly.
  const auto goes_on = [&](const std::pair<std::string, Tombstone>& row) {
    const Result<bool> done = remove(row.first, row.second);
    const std::lock_guard lock(mutex);
    if (!done.ok() || !*done) walk_.left_some();
    if (!done.ok()) failed = done.error();
    return failed.code == 0;
  };
  at_once(std::min(kAtOnce, files), [&] {
    for (std::size_t i = next++; i < files && !is_stopping(); i = next++)
      if (!goes_on(batch[i])) return;
  });
  // Those that are in another come first.
  std::sort(batch.begin() + static_cast<std::ptrdiff_t>(files), batch.end(),
            [](const auto& one, const auto& other) { return one.first > other.first; });
  for (std::size_t i = files; i < batch.size() && failed.code == 0 && !is_stopping(); ++i)
    static_cast<void>(goes_on(batch[i]));
  if (failed.code == 0) return WorkLeft::kMore;
  walk_.restart();
  return failed;
}

Result<bool> NameRemover::remove(const std::string& path, const Tombstone& tombstone) {
  const std::uint64_t path_hash = pool_path_hash(path);
  if (put_off_.holds(path_hash, monotonic_now())) return false;
  // In its turn: it would not be empty.
  if (tombstone.is_directory && TRY(has_more_below(path))) return false;
  const UnixNanos now = service_.server_now();
  if (now == 0) return false;
  const std::uint64_t number = TRY(core_.catalog.next_id());
  const Result<Gone> removed = service_.client().call<Gone>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [path, tombstone, now, number, node = service_.node()](
          PoolSession& session, Deadline deadline) -> Result<Gone> {
        if (tombstone.is_directory)
          return Gone{.fileid = TRY(remove_described_directory(session, path, tombstone.fileid,
                                                               deadline))};
        const PoolStatus file =
            TRY(put_into_trash(session, path, tombstone.fileid, now, node, number, deadline));
        return Gone{.fileid = tombstone.fileid, .bytes = file.size};
      });
  const int code = removed.ok() ? 0 : removed.error().code;
  // Not there any more, or another one by now; or a directory that others use, which comes back.
  const bool is_done =
      code == 0 || code == ENOENT || code == ENOTDIR || code == ESTALE || code == ENOTEMPTY;
  if (!is_done) return put_off(path, removed.error());
  put_off_.forget(path_hash);
  // One that is not there may have gone with a try whose answer was lost.
  const Gone gone = removed.ok() ? *removed : Gone{.fileid = tombstone.fileid};
  if (gone.fileid != 0 && code != ENOTEMPTY)
    service_.tell({.change = PoolChange::kRemoved,
                   .path_hash = path_hash,
                   .fileid = gone.fileid,
                   .size = gone.bytes});
  if (code == 0 && !tombstone.is_directory) removed_.fetch_add(1, std::memory_order_relaxed);
  // Another may have been put in its place meanwhile.
  if (TRY(core_.catalog.find_tombstone(path)) != tombstone) return false;
  Edit edit;
  edit.set_frees();
  edit.remove_tombstone(path);
  TRY(core_.catalog.commit(std::move(edit)));
  return true;
}

Result<bool> NameRemover::put_off(const std::string& path, const Error& error) {
  failed_.fetch_add(1, std::memory_order_relaxed);
  const auto noted = is_of_pool(error.code)
                         ? PutOff::Noted::kFull
                         : put_off_.note(pool_path_hash(path), monotonic_now());
  if (noted == PutOff::Noted::kFull && !is_of_path(error.code)) return error;
  if (noted == PutOff::Noted::kFirst)
    log_warn("pool: not removed yet path=\"{}\" step=\"{}\" errno={}", path, error.what,
             error.code);
  return false;
}

// Names that are still to be taken away in a directory.
Result<bool> NameRemover::has_more_below(const std::string& directory) {
  const std::string below = directory + "/";
  const auto next = TRY(core_.catalog.list_tombstones(below, 1));
  return !next.empty() && next.front().first.starts_with(below);
}

}  // namespace kvcachefs
