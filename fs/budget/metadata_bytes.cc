#include "fs/budget/metadata_bytes.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>

namespace kvcachefs {
namespace {

std::uint64_t bytes_of(const InodeRecord& record) noexcept {
  if (record.nlink == 0) return 0;
  const bool is_long =
      S_ISLNK(record.mode) && record.target.size() >= MetadataBytes::kShortTarget;
  std::uint64_t names = S_ISDIR(record.mode) ? 0 : record.nlink;
  // The first is that of a file's bytes, or of the block.
  if (S_ISREG(record.mode) || is_long) --names;
  return names * MetadataBytes::kName + (is_long ? MetadataBytes::kBlock : 0) +
         ((record.flags & kInodeHasXattr) != 0 ? MetadataBytes::kBlock : 0);
}

}  // namespace

void MetadataBytes::set_most_bytes(std::uint64_t budget) {
  const std::lock_guard lock(mutex_);
  bytes_.most = budget / kPartOfBudget;
}

Result<void> MetadataBytes::check(const InodeRecord& before, const InodeRecord& after) const {
  const std::uint64_t had = bytes_of(before);
  const std::uint64_t has = bytes_of(after);
  if (has <= had) return {};
  const std::lock_guard lock(mutex_);
  if (!bytes_.lets_in(after.uid, has - had))
    return fail(ENOSPC, "its owner has as many attributes, links and special files as he may");
  return {};
}

void MetadataBytes::changed(const InodeRecord& before, const InodeRecord& after) {
  const std::uint64_t had = bytes_of(before);
  const std::uint64_t has = bytes_of(after);
  if (had == 0 && has == 0) return;
  if (had == has && before.uid == after.uid) return;
  const std::lock_guard lock(mutex_);
  bytes_.take(before.uid, had);
  bytes_.add(after.uid, has);
  if (!recount_) return;
  (*recount_)[before.uid] -= static_cast<std::int64_t>(had);
  (*recount_)[after.uid] += static_cast<std::int64_t>(has);
}

void MetadataBytes::begin_recount() {
  const std::lock_guard lock(mutex_);
  recount_.emplace();
}

void MetadataBytes::recount(const InodeRecord& inode) {
  const std::uint64_t has = bytes_of(inode);
  if (has == 0) return;
  const std::lock_guard lock(mutex_);
  if (recount_) (*recount_)[inode.uid] += static_cast<std::int64_t>(has);
}

void MetadataBytes::end_recount(bool is_whole) {
  const std::lock_guard lock(mutex_);
  if (is_whole && recount_) {
    UserBytes counted{.most = bytes_.most, .bytes = 0, .of_user = {}};
    for (const auto& [user, bytes] : *recount_)
      if (bytes > 0) counted.add(user, static_cast<std::uint64_t>(bytes));
    bytes_ = std::move(counted);
  }
  recount_.reset();
}

std::uint64_t MetadataBytes::all() const {
  const std::lock_guard lock(mutex_);
  return bytes_.bytes;
}

std::vector<std::pair<uid_t, std::uint64_t>> MetadataBytes::list() const {
  std::vector<std::pair<std::uint64_t, uid_t>> most;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [user, bytes] : bytes_.of_user) most.emplace_back(bytes, user);
  }
  std::sort(most.begin(), most.end(), std::greater<>());
  most.resize(std::min(most.size(), kMostUsers));
  std::vector<std::pair<uid_t, std::uint64_t>> out;
  for (const auto& [bytes, user] : most) out.emplace_back(user, bytes);
  return out;
}

void MetadataBytes::restore(const std::vector<std::pair<uid_t, std::uint64_t>>& users) {
  const std::lock_guard lock(mutex_);
  for (const auto& [user, bytes] : users) bytes_.add(user, bytes);
}

}  // namespace kvcachefs
