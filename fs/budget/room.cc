#include "fs/budget/room.h"

#include <algorithm>

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

// Evicted bytes are free after the reaper's pause, a sync of the catalog and the unlinks.
constexpr double kSecondsAhead = 0.5;
// A writer that comes after a pause writes to memory, a quarter of a gigabyte in so short a time.
constexpr double kLeastAhead = 256.0 * kMiB;
constexpr double kLeastDanger = 256.0 * kMiB;
// Four times the longest that two looks may lie apart while there are writers (50 ms).
constexpr double kSecondsUnseen = 0.2;
// One in a hundred of the filesystem's inodes, and no more than a burst of stores takes.
constexpr std::uint64_t kInodeShare = 100;
constexpr std::uint64_t kMostInodesKept = 65'536;
// Half a second of creates, of a filesystem that is not made for a handful of files.
constexpr std::uint64_t kInodesAhead = 16;
constexpr std::uint64_t kMostInodesAhead = 16'384;

std::int64_t minus(std::uint64_t a, std::uint64_t b) noexcept {
  return static_cast<std::int64_t>(a) - static_cast<std::int64_t>(b);
}

}  // namespace

Room room_of(const DeviceLimits& limits, const struct statvfs& below,
             std::optional<std::uint64_t> used, std::uint64_t database) noexcept {
  const std::uint64_t total = below.f_blocks * below.f_frsize;
  const std::uint64_t available = below.f_bavail * below.f_frsize;
  Room room;
  room.min_free = std::min(limits.min_free.of(total), total);
  room.bytes = minus(available, room.min_free);
  const std::uint64_t ours = used.value_or(0);
  room.budget = limits.size.value_or((available / limits.sharers + ours + database) / 100 *
                                     kDefaultSharePercent);
  // More than there is cannot be used, whatever was given; nor what others have filled.
  room.budget = std::min(room.budget, total - room.min_free);
  if (used) {
    const std::uint64_t reached = available + ours + database;
    room.budget = std::min(room.budget, reached - std::min(reached, room.min_free));
  }
  room.budget -= std::min(database, room.budget / 2);
  if (used) room.bytes = std::min(room.bytes, minus(room.budget, ours));
  // XFS makes inodes as it goes, and then says so by large numbers.
  const std::uint64_t reserve =
      std::min<std::uint64_t>(below.f_files / kInodeShare, kMostInodesKept);
  room.inodes = below.f_files == 0 ? INT64_MAX : minus(below.f_favail, reserve);
  room.most_inodes = below.f_files - std::min(below.f_files, reserve);
  return room;
}

Marks marks_of(std::uint64_t budget, double bytes_per_second, std::uint64_t inodes) noexcept {
  const double most = static_cast<double>(budget) / 8;
  const double least = std::max(static_cast<double>(budget) / 64, std::min(most, kLeastAhead));
  const double ahead = std::clamp(bytes_per_second * kSecondsAhead, least, most);
  const auto headroom = static_cast<std::uint64_t>(ahead);
  const auto inode_headroom =
      static_cast<std::int64_t>(std::min(inodes / kInodesAhead, kMostInodesAhead));
  return {.headroom = headroom,
          .low = headroom / 2,
          .inode_headroom = inode_headroom,
          .inode_low = inode_headroom / 2};
}

std::uint64_t danger_floor(const Room& room, double bytes_per_second) noexcept {
  const double most = static_cast<double>(std::max(room.min_free / 2, room.budget / 256));
  const double floor = std::max(kLeastDanger, bytes_per_second * kSecondsUnseen);
  return static_cast<std::uint64_t>(std::min(floor, most));
}

double WriteRate::measure(std::uint64_t written, std::int64_t now_ns) noexcept {
  const std::int64_t second = now_ns / kNanosPerSecond;
  for (std::int64_t s = std::max(second_ + 1, second - static_cast<std::int64_t>(kSeconds) + 1);
       s <= second; ++s)
    peaks_[static_cast<std::size_t>(s) % kSeconds] = 0;
  second_ = std::max(second_, second);
  if (last_ns_ == 0) {
    last_ns_ = now_ns;
    last_written_ = written;
  } else if (now_ns - last_ns_ >= kShortest) {
    const double seconds = static_cast<double>(now_ns - last_ns_) / kNanosPerSecond;
    double& peak = peaks_[static_cast<std::size_t>(second_) % kSeconds];
    peak = std::max(peak, static_cast<double>(written - last_written_) / seconds);
    last_ns_ = now_ns;
    last_written_ = written;
  }
  return *std::max_element(peaks_.begin(), peaks_.end());
}

}  // namespace kvcachefs
