#include "fs/known/order_source.h"

#include <algorithm>

namespace kvcachefs {
namespace {

constexpr std::int64_t kStampNanos = 10'000'000;

Result<std::uint64_t> recorded_use(Catalog& catalog, std::uint64_t block,
                                   const BlockRecord* recorded) {
  if (recorded != nullptr) return recorded->stamp;
  const std::optional<BlockRecord> found = TRY(catalog.find_block(block));
  return found ? found->stamp : 0;
}

}  // namespace

UnixNanos time_of_stamp(std::uint64_t stamp) noexcept {
  // Also of a row that somebody has damaged.
  if (stamp >= static_cast<std::uint64_t>(INT64_MAX / kStampNanos)) return 0;
  return static_cast<UnixNanos>(stamp) * kStampNanos;
}

Result<std::uint64_t> LearnerOrder::last_use(std::uint64_t block, const BlockRecord* recorded) {
  if (const auto key = learner_.eviction_key(block)) return key->stamp;
  // Not given to the learner yet: the mount has just started.
  return recorded_use(catalog_, block, recorded);
}

Result<std::optional<order::Parent>> RecordedOrder::parent(std::uint64_t block) {
  const std::optional<BlockRecord> record = TRY(catalog_.find_block(block));
  if (!record || !record->has_parent) return std::optional<order::Parent>{};
  return std::optional{order::Parent{.name = record->parent, .firm = true}};
}

Result<void> RecordedOrder::read_links() {
  if (read_) return {};
  TRY(catalog_.each_block(
      std::nullopt,
      [this](std::uint64_t block, const BlockRecord& record) {
        if (!record.has_parent) return true;
        partial_ = links_.size() == most_links_;
        if (!partial_) links_.emplace_back(record.parent, block);
        return !partial_;
      },
      [](const std::string&) {}));
  std::sort(links_.begin(), links_.end());
  read_ = true;
  return {};
}

Result<std::vector<std::uint64_t>> RecordedOrder::children(std::uint64_t block,
                                                           std::size_t limit) {
  TRY(read_links());
  std::vector<std::uint64_t> children;
  const std::pair<std::uint64_t, std::uint64_t> first{block, 0};
  for (auto link = std::lower_bound(links_.begin(), links_.end(), first);
       link != links_.end() && link->first == block && children.size() < limit; ++link)
    children.push_back(link->second);
  return children;
}

Result<std::uint64_t> RecordedOrder::last_use(std::uint64_t block,
                                              const BlockRecord* recorded) {
  return recorded_use(catalog_, block, recorded);
}

}  // namespace kvcachefs
