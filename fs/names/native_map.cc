#include "fs/names/native_map.h"

#include <dirent.h>

#include <algorithm>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "fs/node/attributes.h"

namespace kvcachefs {
namespace {

constexpr std::string_view kPrefixName = "prefix";
constexpr std::size_t kFewestDigits = 16;
constexpr std::size_t kMostDigits = 128;

constexpr std::int64_t kQuiet = 10 * kNanosPerSecond;

}  // namespace

bool is_prefix_hash(std::string_view name) noexcept {
  return name.size() >= kFewestDigits && name.size() <= kMostDigits &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<void> NativeMap::load(Catalog& catalog) {
  const std::optional<DentryRecord> prefix = TRY(catalog.find_dentry(kRootInode, kPrefixName));
  prefix_.store(prefix && prefix->type == DT_DIR ? prefix->inode : 0);
  return {};
}

void NativeMap::changed(InodeNumber parent, std::string_view name,
                        InodeNumber directory) noexcept {
  if (parent == kRootInode && name == kPrefixName)
    prefix_.store(directory, std::memory_order_release);
}

double NativeMap::miss_timeout(InodeNumber parent) const noexcept {
  return holds(parent) ? kBlockTimeout : kNegativeTimeout;
}

void NativeMap::note_second(Counters& counters, std::string_view hash, std::uint64_t first_size,
                            std::uint64_t second_size) noexcept {
  counters.duplicates.fetch_add(1, std::memory_order_relaxed);
  if (first_size == second_size) return;
  counters.duplicates_of_other_size.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t now = monotonic_now();
  std::int64_t quiet_until = quiet_until_ns_.load(std::memory_order_relaxed);
  if (now < quiet_until || !quiet_until_ns_.compare_exchange_strong(quiet_until, now + kQuiet))
    return;
  log_warn(
      "prefix_sizes_differ hash={} kept_bytes={} given_up_bytes={}: two writers gave one hash "
      "to "
      "different data (further ones within 10 s are only counted)",
      hash, first_size, second_size);
}

Result<std::optional<pid_t>> writer_under_hash(Inode& inode) {
  const auto lock = TRY(lock_to_look(inode));
  const bool unfinished =
      (inode.record.flags & kInodeFirstWriter) != 0 && !is_final(inode.record);
  if (!unfinished) return std::optional<pid_t>{};
  return std::optional(inode.creator);
}

}  // namespace kvcachefs
