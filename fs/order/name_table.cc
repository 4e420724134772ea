#include "fs/order/name_table.h"

#include <cassert>
#include <utility>

namespace kvcachefs::order {

NameIndex NameTable::find(std::uint64_t name) const noexcept {
  const std::uint64_t hash = mix(name);
  const Segment& segment = segment_of(hash);
  if (segment.line_count == 0) return kNoName;
  const std::uint32_t print = print_of(hash);
  std::uint32_t at = home(segment, hash);
  for (std::uint32_t lines = 0; lines < segment.line_count; ++lines) {
    const Line& line = segment.lines[at];
    for (const std::uint32_t slot : line.slots) {
      const NameIndex index = slot & kIndexMask;
      if (slot >> kIndexBits == print && index != kNoName && (*this)[index].name == name)
        return index;
    }
    if (line.passed_on == 0) return kNoName;
    if (++at == segment.line_count) at = 0;
  }
  return kNoName;
}

NameIndex NameTable::insert(std::uint64_t name) {
  const NameIndex index = take_record();
  if (index == kNoName) return kNoName;
  NameRecord& record = (*this)[index];
  record = NameRecord{};
  record.name = name;
  record.live = 1;
  put_in_table(index);
  return index;
}

void NameTable::rename(NameIndex index, std::uint64_t name) {
  take_from_table(index);
  (*this)[index].name = name;
  put_in_table(index);
}

void NameTable::erase(NameIndex index) noexcept {
  take_from_table(index);
  NameRecord& record = (*this)[index];
  record.live = 0;
  record.parent = free_ & kIndexMask;
  free_ = index;
}

void NameTable::put_in_table(NameIndex index) {
  const std::uint64_t hash = mix((*this)[index].name);
  Segment& segment = segment_of(hash);
  // 85 % of the slots.
  if ((segment.used + 1) * 20 > segment.line_count * kSlots * 17) grow(segment);
  place(segment, hash, index);
  ++segment.used;
  ++size_;
}

void NameTable::take_from_table(NameIndex index) noexcept {
  const std::uint64_t hash = mix((*this)[index].name);
  Segment& segment = segment_of(hash);
  const std::uint32_t wanted = slot_of(index, hash);
  std::uint32_t at = home(segment, hash);
  for (bool gone = false; !gone;) {
    Line& line = segment.lines[at];
    for (std::uint32_t& slot : line.slots) {
      if (slot != wanted) continue;
      slot = 0;
      gone = true;
      break;
    }
    if (gone) break;
    assert(line.passed_on > 0);
    --line.passed_on;
    if (++at == segment.line_count) at = 0;
  }
  --segment.used;
  --size_;
}

std::size_t NameTable::memory_bytes() const noexcept {
  std::size_t lines = 0;
  for (const Segment& segment : segments_) lines += segment.line_count;
  return lines * sizeof(Line) + chunks_.size() * kChunk * sizeof(NameRecord) +
         chunks_.capacity() * sizeof(chunks_[0]);
}

void NameTable::place(Segment& segment, std::uint64_t hash, NameIndex index) noexcept {
  std::uint32_t at = home(segment, hash);
  while (true) {
    Line& line = segment.lines[at];
    for (std::uint32_t& slot : line.slots) {
      if (slot != 0) continue;
      slot = slot_of(index, hash);
      return;
    }
    ++line.passed_on;
    if (++at == segment.line_count) at = 0;
  }
}

void NameTable::grow(Segment& segment) {
  Segment larger;
  larger.line_count = segment.line_count + segment.line_count / 4 + 1;
  larger.lines = std::make_unique<Line[]>(larger.line_count);
  larger.used = segment.used;
  for (std::uint32_t at = 0; at < segment.line_count; ++at) {
    for (const std::uint32_t slot : segment.lines[at].slots) {
      const NameIndex index = slot & kIndexMask;
      if (index != kNoName) place(larger, mix((*this)[index].name), index);
    }
  }
  segment = std::move(larger);
}

NameIndex NameTable::take_record() {
  if (free_ != kNoName) {
    const NameIndex index = free_;
    free_ = (*this)[index].parent;
    return index;
  }
  if (next_ > kMaxNames) return kNoName;
  // Not zeroed: insert() does that, and a chunk's pages are touched only as they fill.
  if (next_ / kChunk >= chunks_.size())
    chunks_.push_back(std::make_unique_for_overwrite<NameRecord[]>(kChunk));
  return next_++;
}

}  // namespace kvcachefs::order
