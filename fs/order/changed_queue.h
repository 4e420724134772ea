// Which names have something new to write down, without a limit on how many and with one on the
// memory: 64 Ki names in a queue, and a walk over all records for what did not fit.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <vector>

#include "fs/order/name_table.h"

namespace kvcachefs::order {

class ChangedQueue {
 public:
  explicit ChangedQueue(NameTable& names) : names_(names) {}

  void add(NameIndex index) {
    NameRecord& record = names_[index];
    if (record.changed == 1) return;
    record.changed = 1;
    if (count_ == kQueued) {
      missed_ = true;
      return;
    }
    if (queue_.size() < kQueued && (begin_ + count_) % kQueued == queue_.size()) {
      queue_.push_back(index);
    } else {
      queue_[(begin_ + count_) % kQueued] = index;
    }
    ++count_;
  }

  // The next one, which counts as written from here; kNoName when there is none. Walks over at
  // most `records` records, so kNoName with more() means: later.
  NameIndex take(std::size_t& records) noexcept {
    while (count_ > 0) {
      const NameIndex index = queue_[begin_];
      begin_ = (begin_ + 1) % kQueued;
      --count_;
      if (take_if_changed(index)) return index;
    }
    if (walk_ == kNoName && missed_) {
      missed_ = false;
      walk_ = 1;
    }
    while (walk_ != kNoName && records > 0) {
      --records;
      const NameIndex index = walk_;
      walk_ = walk_ + 1 < names_.end() ? walk_ + 1 : kNoName;
      if (index < names_.end() && take_if_changed(index)) return index;
    }
    return kNoName;
  }

  [[nodiscard]] bool more() const noexcept { return count_ > 0 || missed_ || walk_ != kNoName; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return queue_.capacity() * sizeof(queue_[0]);
  }

 private:
  // A coarse stamp changes once a minute for each name in use; a quarter of a megabyte.
  static constexpr std::size_t kQueued = 65536;

  bool take_if_changed(NameIndex index) noexcept {
    NameRecord& record = names_[index];
    if (record.live == 0 || record.changed == 0) return false;
    record.changed = 0;
    return true;
  }

  NameTable& names_;
  std::vector<NameIndex> queue_;
  std::size_t begin_ = 0;
  std::size_t count_ = 0;
  NameIndex walk_ = kNoName;
  bool missed_ = false;
};

}  // namespace kvcachefs::order
