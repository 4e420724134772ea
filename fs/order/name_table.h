// The names the learner knows: records in chunks that never move, found by a hash table of 4-byte
// slots.
//
// A slot is the record's index and 6 bits of the name's hash. 15 slots and a count of the names
// that had to go on to the next line share a cache line, so a search reads one line and one record,
// and a removal leaves no tombstone. The table is cut into segments that grow by a fourth when they
// are 85 % full: memory follows the number of names closely, and no call waits for more than one
// segment (10 million names: 10 thousand) to be filled anew.
//
// Not thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fs/order/name_record.h"

namespace kvcachefs::order {

class NameTable {
 public:
  // What 26 bits can number; 4 GB of records. Names beyond it are not learned.
  static constexpr std::size_t kMaxNames = kIndexMask;

  [[nodiscard]] NameIndex find(std::uint64_t name) const noexcept;
  // A record with all but its name zero; kNoName when the table is full. The name must be new.
  NameIndex insert(std::uint64_t name);
  // Another name for the same record; it must be new. References with the old one do not find it any more.
  void rename(NameIndex index, std::uint64_t name);
  // The record must be in no list.
  void erase(NameIndex index) noexcept;

  NameRecord& operator[](NameIndex index) noexcept {
    return chunks_[index / kChunk][index % kChunk];
  }
  const NameRecord& operator[](NameIndex index) const noexcept {
    return chunks_[index / kChunk][index % kChunk];
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // One more than the highest index ever given.
  [[nodiscard]] NameIndex end() const noexcept { return next_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

  // 6 bits of the hash, for references that may outlive what they point to.
  [[nodiscard]] static std::uint32_t print(std::uint64_t name) noexcept {
    return print_of(mix(name));
  }

 private:
  static constexpr std::size_t kChunk = 4096;
  static constexpr std::size_t kSegments = 1024;
  static constexpr unsigned kSlots = 15;

  struct alignas(64) Line {
    std::array<std::uint32_t, kSlots> slots;
    std::uint32_t passed_on;  // names that belong here and live further on
  };
  struct Segment {
    std::unique_ptr<Line[]> lines;
    std::uint32_t line_count = 0;
    std::uint32_t used = 0;
  };

  static std::uint64_t mix(std::uint64_t name) noexcept {
    name += 0x9e3779b97f4a7c15u;
    name = (name ^ (name >> 30)) * 0xbf58476d1ce4e5b9u;
    name = (name ^ (name >> 27)) * 0x94d049bb133111ebu;
    return name ^ (name >> 31);
  }
  static std::uint32_t print_of(std::uint64_t hash) noexcept {
    return static_cast<std::uint32_t>(hash >> 32) & 0x3f;
  }
  static std::uint32_t slot_of(NameIndex index, std::uint64_t hash) noexcept {
    return index | (print_of(hash) << kIndexBits);
  }
  static std::uint32_t home(const Segment& segment, std::uint64_t hash) noexcept {
    return static_cast<std::uint32_t>(((hash & 0xffffffffu) * segment.line_count) >> 32);
  }
  Segment& segment_of(std::uint64_t hash) noexcept { return segments_[hash >> 54]; }
  const Segment& segment_of(std::uint64_t hash) const noexcept { return segments_[hash >> 54]; }

  static void place(Segment& segment, std::uint64_t hash, NameIndex index) noexcept;
  void put_in_table(NameIndex index);
  void take_from_table(NameIndex index) noexcept;
  void grow(Segment& segment);
  NameIndex take_record();

  std::array<Segment, kSegments> segments_;
  std::vector<std::unique_ptr<NameRecord[]>> chunks_;
  NameIndex next_ = 1;
  NameIndex free_ = kNoName;
  std::size_t size_ = 0;
};
static_assert(NameTable::kMaxNames == (1u << kIndexBits) - 1);

}  // namespace kvcachefs::order
