// What the learner keeps of one name: 56 bytes, so that with its share of the hash table a stored
// name costs at most 64. References between names are 26-bit indices; the bits left over hold the
// small fields.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvcachefs::order {

// The place of a name's record in the table; 0 is no name.
using NameIndex = std::uint32_t;
inline constexpr NameIndex kNoName = 0;
inline constexpr unsigned kIndexBits = 26;
inline constexpr NameIndex kIndexMask = (1u << kIndexBits) - 1;

// Ticks of 10 ms: bursts are at least 100 ms apart, and 40 bits of them last 348 years.
using Stamp = std::uint64_t;
inline constexpr std::int64_t kNanosPerStamp = 10'000'000;
// 1/16 us: a name first seen later has the higher birth, with room for repairs in between.
using Birth = std::uint64_t;

// Whose order of eviction a name is in, its own or another's: names of one group are in one order.
using Group = std::uint8_t;
inline constexpr unsigned kGroupBits = 6;
inline constexpr std::size_t kGroups = std::size_t{1} << kGroupBits;

// How sure a link is.
inline constexpr std::uint32_t kGuessed = 0;  // from one sighting
inline constexpr std::uint32_t kKept = 1;     // its parent was near again
inline constexpr std::uint32_t kSettled = 2;  // seen twice
inline constexpr std::uint32_t kLongSettled = 4;
inline constexpr std::uint32_t kHinted = 7;  // told, not learned

// What made a process's call number `position`: the numbers count each kind by itself.
enum class CallKind : std::uint8_t { kProbe, kStore, kLoad };
inline constexpr unsigned kCallKinds = 3;

struct NameRecord {
  std::uint64_t name;

  // The free records form a list through `parent`.
  std::uint32_t parent : kIndexBits, confidence : 3, misses : 2, stored : 1;
  // A candidate may have been forgotten and its place taken by another name, so a few bits of
  // its hash stay with it; a parent is exact, its record knows its children.
  std::uint32_t candidate : kIndexBits, candidate_print : 6;
  std::uint32_t first_child : kIndexBits, process : 6;
  std::uint32_t next_sibling : kIndexBits,
                               kind : 2,
                               live : 1,
                               changed : 1,
                               open_head : 1,
                               spare : 1;
  std::uint32_t previous_sibling : kIndexBits, position_high : 6;
  // Neighbours in the order of eviction when stored, else in the list of what waits to be.
  std::uint32_t order_previous : kIndexBits, group : kGroupBits;
  std::uint32_t order_next : kIndexBits, spare_next : 6;

  std::uint32_t stamp_low, birth_low;
  std::uint32_t stamp_high : 8, birth_high : 24;

  // The numbers below wrap around. A false match (one sighting in 65,536) costs one link a
  // sighting, not more.
  std::uint16_t run;           // of its last sighting; 0: none
  std::uint16_t seen_seconds;  // when it was last probed, stored or loaded
  std::uint16_t position_low;
  std::uint8_t parent_class, candidate_class;

  [[nodiscard]] Stamp stamp() const noexcept {
    return (static_cast<Stamp>(stamp_high) << 32) | stamp_low;
  }
  void set_stamp(Stamp stamp) noexcept {
    stamp_low = static_cast<std::uint32_t>(stamp);
    stamp_high = static_cast<std::uint32_t>(stamp >> 32) & 0xff;
  }
  [[nodiscard]] Birth birth() const noexcept {
    return (static_cast<Birth>(birth_high) << 32) | birth_low;
  }
  void set_birth(Birth birth) noexcept {
    birth_low = static_cast<std::uint32_t>(birth);
    birth_high = static_cast<std::uint32_t>(birth >> 32) & 0xffffff;
  }
  [[nodiscard]] std::uint32_t position() const noexcept {
    return (static_cast<std::uint32_t>(position_high) << 16) | position_low;
  }
  static constexpr std::uint32_t kPositionMask = (1u << 22) - 1;
  void set_position(std::uint32_t position) noexcept {
    position_low = static_cast<std::uint16_t>(position);
    position_high = (position >> 16) & 0x3f;
  }
};
static_assert(sizeof(NameRecord) == 56);

}  // namespace kvcachefs::order
