// The stored names in the order in which eviction takes them: lowest stamp first, of one stamp the
// youngest-born first.
//
// Leaves of up to 512 names, each a list through the records' order links, and one sorted array
// that says where each leaf begins. Inside, a leaf is sorted only when somebody visits it: most
// names move to a higher stamp long before they become victims, and moving one costs two searches
// in that array and no sorting. A leaf that grows too large is cut at its middle, small neighbours
// are joined, so the array stays below 0.2 bytes a name and a visit sorts at most 512 names at once.
//
// Not thread safe.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fs/order/name_table.h"

namespace kvcachefs::order {

// The place of a name in the order; lower goes first. Names break ties, so no two are equal.
struct Position {
  Stamp stamp = 0;
  Birth birth = 0;
  std::uint64_t name = 0;

  friend constexpr bool operator==(const Position&, const Position&) noexcept = default;
  friend constexpr std::strong_ordering operator<=>(const Position& a,
                                                    const Position& b) noexcept {
    if (a.stamp != b.stamp) return a.stamp <=> b.stamp;
    if (a.birth != b.birth) return b.birth <=> a.birth;
    return a.name <=> b.name;
  }
};

class OrderIndex {
 public:
  explicit OrderIndex(NameTable& names) : names_(names) {}

  // A record's stamp and birth must not change while it is in here.
  void insert(NameIndex index);
  void remove(NameIndex index) noexcept;

  // The lowest names, at most `limit`, that come after `after` (null: from the lowest on).
  void lowest(std::size_t limit, const Position* after, std::vector<NameIndex>& out);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t memory_bytes() const noexcept {
    return leaves_.capacity() * sizeof(Leaf) + scratch_.capacity() * sizeof(scratch_[0]);
  }
  [[nodiscard]] Position position(NameIndex index) const noexcept {
    const NameRecord& record = names_[index];
    return Position{record.stamp(), record.birth(), record.name};
  }

 private:
  static constexpr std::uint32_t kLargest = 512;
  static constexpr std::uint32_t kSmall = 64;    // looks for a neighbour to join
  static constexpr std::uint32_t kJoined = 256;  // what two may hold to become one

  struct Leaf {
    Position low;  // nothing in here is lower, but in the first leaf
    NameIndex head = kNoName;
    std::uint32_t count = 0;
    bool sorted = true;
  };
  struct Entry {
    Position position;
    NameIndex index;
  };

  std::size_t leaf_of(const Position& position) const noexcept;
  void push_front(Leaf& leaf, NameIndex index) noexcept;
  void gather_sorted(const Leaf& leaf);
  NameIndex relink(std::size_t begin, std::size_t end) noexcept;
  void sort(Leaf& leaf);
  void split(std::size_t at);
  void join_if_small(std::size_t at) noexcept;
  void join_next(std::size_t at) noexcept;

  NameTable& names_;
  std::vector<Leaf> leaves_;
  std::vector<Entry> scratch_;
  Position highest_;  // nothing in the index is higher
  std::size_t size_ = 0;
};

}  // namespace kvcachefs::order
