#include "fs/life/drop_history.h"

#include <algorithm>

#include "fs/known/block_number.h"

namespace kvcachefs {
namespace {

// Of 64 bits: two of the names kept have the same once in a billion histories.
std::uint64_t hash_of(std::string_view path) noexcept { return block_number(0, path); }

}  // namespace

void DropHistory::add_name(std::string_view path, const Dropped& what) {
  const std::uint64_t hash = hash_of(path);
  const std::lock_guard lock(mutex_);
  if (entries_.size() == kMost) entries_.pop_front();
  entries_.push_back({.path = hash, .what = what});
}

void DropHistory::count(DropReason reason, std::uint64_t bytes) noexcept {
  Count& count = counts_[static_cast<std::size_t>(reason)];
  count.files.fetch_add(1, std::memory_order_relaxed);
  count.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

std::optional<Dropped> DropHistory::find(std::string_view path) const {
  const std::uint64_t hash = hash_of(path);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [hash](const Entry& entry) { return entry.path == hash; });
  if (found == entries_.rend()) return std::nullopt;
  return found->what;
}

DropCounts DropHistory::counts() const noexcept {
  DropCounts out;
  for (std::size_t at = 0; at < out.size(); ++at) {
    out[at].files = counts_[at].files.load(std::memory_order_relaxed);
    out[at].bytes = counts_[at].bytes.load(std::memory_order_relaxed);
  }
  return out;
}

}  // namespace kvcachefs
