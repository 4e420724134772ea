#include "backend/pool/pool_tally.h"

#include <algorithm>
#include <tuple>

#include "backend/pool/pool_format.h"

namespace kvcachefs {
namespace {

// By one file: what is remembered can be summed up.
constexpr std::uint64_t kMostTaken = std::uint64_t{1} << 50;
static_assert(kMostTaken <= UINT64_MAX / (PoolTally::kMostCold + 1));
constexpr std::int64_t kSameUse = 60 * kNanosPerSecond;

// A directory that only root may see (lost+found), or another filesystem.
bool is_not_ours(int code) noexcept {
  return code == EACCES || code == EPERM || code == EXDEV || code == ELOOP;
}

bool is_ahead(UnixNanos used, UnixNanos now) noexcept {
  return now < INT64_MAX - PoolTally::kAhead && used > now + PoolTally::kAhead;
}

}  // namespace

bool PoolColdFile::operator<(const PoolColdFile& other) const noexcept {
  return std::make_tuple(rank / kSameUse, other.written, std::string_view(path)) <
         std::make_tuple(other.rank / kSameUse, written, std::string_view(other.path));
}

void PoolTally::add(std::string path, const PoolStatus& status) {
  tells_taken_ = tells_taken_ || status.taken > 0;
  guessed_ = guessed_ || (!tells_taken_ && status.size > 0);
  add({.path = std::move(path),
       .fileid = status.fileid,
       .size = tells_taken_ ? std::min(status.size, status.taken) : status.size,
       .used = status.atime,
       .written = status.mtime});
}

void PoolTally::add(PoolColdFile file) {
  file.size = std::min(file.size, kMostTaken);
  bytes_ += std::min(file.size, UINT64_MAX - bytes_);
  ++files_;
  if (is_ahead(file.used, now_) && ahead_.size() < kMostAhead) ahead_.push_back(file.path);
  file.written = std::min(file.written, now_);
  file.rank = std::min(file.used, now_);
  if (stay_ != nullptr && stay_->count(file.fileid) > 0) return;
  const bool is_full = cold_bytes_ >= wanted_ || coldest_.size() >= kMostCold;
  if (is_full && (coldest_.empty() || *coldest_.rbegin() < file)) return;
  cold_bytes_ += file.size;
  coldest_.insert(std::move(file));
  while (coldest_.size() > 1) {
    const auto warmest = std::prev(coldest_.end());
    if (cold_bytes_ - warmest->size < wanted_ && coldest_.size() <= kMostCold) break;
    cold_bytes_ -= warmest->size;
    coldest_.erase(warmest);
  }
}

Result<void> use_now(PoolSession& session, const std::string& path, UnixNanos now,
                     Deadline deadline) {
  const PoolFilePtr file = TRY(session.open(path, deadline));
  if (!is_ahead(file->status().atime, now)) return {};
  return session.touch(*file, deadline);
}

Result<std::vector<std::string>> tally_directory(
    PoolSession& session, const std::string& path,
    const std::function<bool(std::string_view top)>& is_mine, PoolTally& tally,
    Deadline deadline) {
  std::vector<std::string> below;
  const bool may_go_deeper =
      static_cast<std::size_t>(std::count(path.begin(), path.end(), '/')) + 1 <
      PoolTally::kMostDepth;
  const Result<void> listed = session.list_statuses(
      path,
      [&](const PoolEntry& entry, const PoolStatus& status) {
        if (path.empty() && (entry.name == kPoolService || !is_mine(entry.name))) return true;
        std::string full =
            path.empty() ? std::string(entry.name) : path + "/" + std::string(entry.name);
        if (status.kind == PoolKind::kDirectory && may_go_deeper) {
          below.push_back(std::move(full));
        } else if (status.kind == PoolKind::kFile) {
          tally.add(std::move(full), status);
        }
        return true;
      },
      deadline);
  if (listed.ok()) return below;
  const int code = listed.error().code;
  const bool is_gone = code == ENOENT || code == ENOTDIR || code == ESTALE;
  if (is_gone || (!path.empty() && is_not_ours(code))) return below;
  return listed.error();
}

}  // namespace kvcachefs
