// How much of a device may be used, how much of that is left, and how far ahead of the writers room
// is made. Arithmetic: no I/O, no clock but the one given.
#pragma once

#include <sys/statvfs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/base/units.h"

namespace kvcachefs {

// Without a size, a device's budget is this share of what is free or already ours.
inline constexpr std::uint64_t kDefaultSharePercent = 80;

struct DeviceLimits {
  std::optional<std::uint64_t> size;             // bytes; nullopt: the default share
  SizeLimit min_free{.bytes = 0, .percent = 5};  // of the filesystem below, whoever fills it
  std::uint64_t sharers =
      1;  // devices on its filesystem, which without a size share what is free
};

struct Room {
  // Bytes that files may have, without what the database has; never more than can be reached.
  std::uint64_t budget = 0;
  std::int64_t bytes = 0;   // left of it; negative: over
  std::int64_t inodes = 0;  // left on the filesystem below, above a reserve; negative: over
  std::uint64_t most_inodes = 0;  // files that may be there; 0: there is no such number
  std::uint64_t min_free = 0;     // bytes of the filesystem that stay free
};

// `used`: bytes of the files there; nullopt: not known yet, and then only what is free below counts.
// `database`: bytes that the metadata has there. They are part of the size, half of it at most: who gives
// less than twice of what his names need has a database that is over it.
[[nodiscard]] Room room_of(const DeviceLimits& limits, const struct statvfs& below,
                           std::optional<std::uint64_t> used,
                           std::uint64_t database = 0) noexcept;

// Below `headroom` files are evicted until it is there again. Below `low` closes of written files wait
// for room, and the writes of newly opened ones are watched.
struct Marks {
  std::uint64_t headroom = 0;
  std::uint64_t low = 0;
  // The same of inodes.
  std::int64_t inode_headroom = 0;
  std::int64_t inode_low = 0;
};
// `inodes`: that the filesystem below has in all, 0: it has no such number.
[[nodiscard]] Marks marks_of(std::uint64_t budget, double bytes_per_second,
                             std::uint64_t inodes) noexcept;

// So little is left on the filesystem below that a write may have failed between two looks, unseen: what is written at that rate
// while the thread that looks is kept waiting. On a small disk it is less than what stays free, and than the low mark.
[[nodiscard]] std::uint64_t danger_floor(const Room& room, double bytes_per_second) noexcept;

// The highest rate of the last ten seconds, from a count that only grows. One thread.
class WriteRate {
 public:
  // Bytes per second.
  double measure(std::uint64_t written, std::int64_t now_ns) noexcept;

 private:
  static constexpr std::size_t kSeconds = 10;
  static constexpr std::int64_t kShortest = 50'000'000;  // ns between two looks

  std::uint64_t last_written_ = 0;
  std::int64_t last_ns_ = 0;
  std::array<double, kSeconds> peaks_{};
  std::int64_t second_ = 0;
};

}  // namespace kvcachefs
