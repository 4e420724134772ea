// A list of names through the two order links of their records: of names that are not stored, in
// the order in which they were last mentioned.
#pragma once

#include <cstddef>

#include "fs/order/name_table.h"

namespace kvcachefs::order {

// Takes a name out of the list that its two order links are in; `head` is that list's.
inline void take_out(NameTable& names, NameIndex index, NameIndex& head) noexcept {
  const NameRecord& record = names[index];
  const NameIndex previous = record.order_previous;
  const NameIndex next = record.order_next;
  if (previous != kNoName) {
    names[previous].order_next = next & kIndexMask;
  } else {
    head = next;
  }
  if (next != kNoName) names[next].order_previous = previous & kIndexMask;
}

class NameList {
 public:
  explicit NameList(NameTable& names) : names_(names) {}

  [[nodiscard]] NameIndex front() const noexcept { return head_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  void push_back(NameIndex index) noexcept {
    NameRecord& record = names_[index];
    record.order_next = kNoName;
    record.order_previous = tail_ & kIndexMask;
    if (tail_ != kNoName) {
      names_[tail_].order_next = index & kIndexMask;
    } else {
      head_ = index;
    }
    tail_ = index;
    ++size_;
  }
  void remove(NameIndex index) noexcept {
    if (names_[index].order_next == kNoName) tail_ = names_[index].order_previous;
    take_out(names_, index, head_);
    --size_;
  }

 private:
  NameTable& names_;
  NameIndex head_ = kNoName;
  NameIndex tail_ = kNoName;
  std::size_t size_ = 0;
};

}  // namespace kvcachefs::order
