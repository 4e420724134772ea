#include "fs/order/order_index.h"

#include <algorithm>

#include "fs/order/name_list.h"

namespace kvcachefs::order {

void OrderIndex::insert(NameIndex index) {
  const Position position = this->position(index);
  ++size_;
  // New stamps are mostly the highest yet: full leaves are left behind, not cut.
  if (leaves_.empty() || (leaves_.back().count >= kLargest && highest_ < position)) {
    leaves_.push_back(Leaf{.low = position});
    push_front(leaves_.back(), index);
    leaves_.back().sorted = true;
    highest_ = leaves_.size() == 1 ? position : std::max(highest_, position);
    return;
  }
  const std::size_t at = leaf_of(position);
  push_front(leaves_[at], index);
  highest_ = std::max(highest_, position);
  if (leaves_[at].count > kLargest) split(at);
}

void OrderIndex::remove(NameIndex index) noexcept {
  const std::size_t at = leaf_of(position(index));
  Leaf& leaf = leaves_[at];
  take_out(names_, index, leaf.head);
  --leaf.count;
  --size_;
  if (leaf.count < kSmall) join_if_small(at);
}

void OrderIndex::lowest(std::size_t limit, const Position* after, std::vector<NameIndex>& out) {
  out.clear();
  for (std::size_t at = after != nullptr ? leaf_of(*after) : 0;
       at < leaves_.size() && out.size() < limit; ++at) {
    sort(leaves_[at]);
    for (NameIndex index = leaves_[at].head; index != kNoName && out.size() < limit;
         index = names_[index].order_next) {
      if (after == nullptr || *after < position(index)) out.push_back(index);
    }
  }
}

// The last leaf that does not begin above the position, or the first.
std::size_t OrderIndex::leaf_of(const Position& position) const noexcept {
  if (leaves_.size() < 2 || leaves_.back().low <= position) {
    return leaves_.empty() ? 0 : leaves_.size() - 1;
  }
  const auto above =
      std::upper_bound(leaves_.begin(), leaves_.end(), position,
                       [](const Position& p, const Leaf& leaf) { return p < leaf.low; });
  return above == leaves_.begin() ? 0 : static_cast<std::size_t>(above - leaves_.begin()) - 1;
}

void OrderIndex::push_front(Leaf& leaf, NameIndex index) noexcept {
  NameRecord& record = names_[index];
  record.order_previous = kNoName;
  record.order_next = leaf.head & kIndexMask;
  if (leaf.head != kNoName) names_[leaf.head].order_previous = index & kIndexMask;
  leaf.head = index;
  ++leaf.count;
  leaf.sorted = false;
}

void OrderIndex::gather_sorted(const Leaf& leaf) {
  scratch_.clear();
  for (NameIndex index = leaf.head; index != kNoName; index = names_[index].order_next)
    scratch_.push_back(Entry{position(index), index});
  std::sort(scratch_.begin(), scratch_.end(),
            [](const Entry& a, const Entry& b) { return a.position < b.position; });
}

NameIndex OrderIndex::relink(std::size_t begin, std::size_t end) noexcept {
  for (std::size_t i = begin; i < end; ++i) {
    NameRecord& record = names_[scratch_[i].index];
    record.order_previous = (i > begin ? scratch_[i - 1].index : kNoName) & kIndexMask;
    record.order_next = (i + 1 < end ? scratch_[i + 1].index : kNoName) & kIndexMask;
  }
  return scratch_[begin].index;
}

void OrderIndex::sort(Leaf& leaf) {
  if (leaf.sorted || leaf.count == 0) return;
  gather_sorted(leaf);
  leaf.head = relink(0, scratch_.size());
  leaf.sorted = true;
}

void OrderIndex::split(std::size_t at) {
  gather_sorted(leaves_[at]);
  const std::size_t middle = scratch_.size() / 2;
  Leaf upper{.low = scratch_[middle].position};
  upper.head = relink(middle, scratch_.size());
  upper.count = static_cast<std::uint32_t>(scratch_.size() - middle);
  Leaf& lower = leaves_[at];
  lower.head = relink(0, middle);
  lower.count = static_cast<std::uint32_t>(middle);
  lower.sorted = true;
  leaves_.insert(leaves_.begin() + static_cast<std::ptrdiff_t>(at) + 1, upper);
}

void OrderIndex::join_if_small(std::size_t at) noexcept {
  if (leaves_[at].count == 0) {
    leaves_.erase(leaves_.begin() + static_cast<std::ptrdiff_t>(at));
  } else if (at + 1 < leaves_.size() && leaves_[at].count + leaves_[at + 1].count <= kJoined) {
    join_next(at);
  } else if (at > 0 && leaves_[at - 1].count + leaves_[at].count <= kJoined) {
    join_next(at - 1);
  }
}

// Two sorted leaves make a sorted one: everything in the next is higher.
void OrderIndex::join_next(std::size_t at) noexcept {
  Leaf& leaf = leaves_[at];
  const Leaf& next = leaves_[at + 1];
  NameIndex tail = leaf.head;
  while (names_[tail].order_next != kNoName) tail = names_[tail].order_next;
  names_[tail].order_next = next.head & kIndexMask;
  names_[next.head].order_previous = tail & kIndexMask;
  leaf.count += next.count;
  leaf.sorted = leaf.sorted && next.sorted;
  leaves_.erase(leaves_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
}

}  // namespace kvcachefs::order
