#include "fs/known/own_time.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kvcachefs {

OwnTime::OwnTime(Clocks clocks)
    : clocks_(std::move(clocks)),
      began_(std::max<std::int64_t>(clocks_.files(), 1)),
      began_monotonic_(clocks_.monotonic()) {}

void OwnTime::begin(const std::optional<ClockRecord>& last, std::string boot_id,
                    std::uint64_t next) {
  began_monotonic_ = clocks_.monotonic();
  if (last) {
    // Of another boot it is known that the machine has been up for so long.
    const std::int64_t passed =
        last->boot_id == boot_id ? began_monotonic_ - last->monotonic : began_monotonic_;
    began_ = last->now + std::clamp<std::int64_t>(passed, 0, INT64_MAX - last->now);
    record_.spans = last->spans;
  }
  record_.boot_id = std::move(boot_id);
  note_set(next);
}

ClockRecord OwnTime::record(std::uint64_t next) {
  const std::lock_guard lock(mutex_);
  note_set(next);
  record_.monotonic = clocks_.monotonic();
  record_.now = began_ + (record_.monotonic - began_monotonic_);
  return record_;
}

bool OwnTime::was_set(std::uint64_t next) {
  const std::lock_guard lock(mutex_);
  return note_set(next);
}

bool OwnTime::note_set(std::uint64_t next) {
  const std::int64_t now = ahead();
  std::vector<ClockSpan>& spans = record_.spans;
  if (!spans.empty() && now - spans.back().ahead <= kSet && spans.back().ahead - now <= kSet)
    return false;
  // Objects of the oldest are taken for some of the next.
  if (spans.size() >= ClockRecord::kMostSpans) spans.erase(spans.begin());
  spans.push_back({.first = next, .ahead = now});
  return true;
}

std::int64_t OwnTime::of_wall(UnixNanos wall, std::uint64_t object) const {
  const std::int64_t until = now();
  std::optional<std::int64_t> youngest;
  const auto take = [&](std::int64_t was_ahead) {
    std::int64_t own = 0;
    if (__builtin_sub_overflow(wall, was_ahead, &own)) own = wall < 0 ? INT64_MIN : INT64_MAX;
    if (own <= until) youngest = std::max(youngest.value_or(1), own);
  };
  take(ahead());
  const std::lock_guard lock(mutex_);
  for (auto span = record_.spans.rbegin(); span != record_.spans.rend(); ++span) {
    take(span->ahead);
    // Those before it were over when the object was made.
    if (span->first <= object) break;
  }
  return youngest.value_or(until);
}

}  // namespace kvcachefs
