#include "fs/pool/damaged_files.h"

#include "backend/base/clock.h"
#include "backend/base/log.h"

namespace kvcachefs {

void DamagedFiles::found(std::string_view path, std::uint64_t path_hash, std::uint64_t fileid) {
  count_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t until = monotonic_now() + std::chrono::nanoseconds(kMissFor).count();
  const std::uint64_t ticket = service_.misses().before_asking(path_hash);
  service_.misses().missed(path_hash, ticket, until);
  if (note(path_hash, {.fileid = fileid, .missed_until_ns = until}))
    log_warn(
        "pool: a file is not what was published, a miss until it is stored again path=\"{}\"",
        path);
}

bool DamagedFiles::note(std::uint64_t path_hash, const File& file) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = files_.try_emplace(path_hash, file);
  const bool is_known = !is_new && at->second.fileid == file.fileid;
  at->second = file;
  if (is_new) order_.push_back(path_hash);
  while (order_.size() > kMost) {
    files_.erase(order_.front());
    order_.pop_front();
  }
  return !is_known;
}

}  // namespace kvcachefs
