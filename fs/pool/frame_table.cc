#include "fs/pool/frame_table.h"

#include <algorithm>
#include <numeric>

namespace kvcachefs {

FrameTable::FrameTable(std::uint64_t size)
    : size_(size),
      frames_(static_cast<std::size_t>((size + kFrame - 1) / kFrame), State::kMissing),
      missing_(frames_.size()) {}

FrameTable::Range FrameTable::covering(std::uint64_t offset,
                                       std::uint64_t size) const noexcept {
  if (offset >= size_ || size == 0) return {};
  const std::uint64_t end = offset + std::min(size, size_ - offset);
  const auto first = static_cast<std::size_t>(offset / kFrame);
  return {.first = first, .count = static_cast<std::size_t>((end - 1) / kFrame) + 1 - first};
}

std::uint64_t FrameTable::size_of(Range range) const noexcept {
  return std::min<std::uint64_t>(range.end() * kFrame, size_) - offset_of(range);
}

bool FrameTable::has(Range range) const noexcept {
  return std::all_of(frames_.begin() + static_cast<std::ptrdiff_t>(range.first),
                     frames_.begin() + static_cast<std::ptrdiff_t>(range.end()),
                     [](State state) { return state == State::kHere; });
}

FrameTable::Want FrameTable::want(Range range) {
  // Who reads on where it ends gets more and more; who reads elsewhere begins anew.
  if (range.end() < ahead_ || range.first > ahead_ + kMostAtOnce) window_ = kFirstWindow;
  ahead_ = range.end();
  return wants_.insert(wants_.end(), range);
}

std::size_t FrameTable::wanted() const noexcept {
  return std::accumulate(wants_.begin(), wants_.end(), std::size_t{0},
                         [](std::size_t sum, const Range& want) { return sum + want.count; });
}

std::optional<FrameTable::Range> FrameTable::missing_run(std::size_t from, std::size_t end,
                                                         std::size_t most) const noexcept {
  const auto is_missing = [](State state) { return state == State::kMissing; };
  const auto limit = frames_.begin() + static_cast<std::ptrdiff_t>(end);
  const auto first =
      std::find_if(frames_.begin() + static_cast<std::ptrdiff_t>(from), limit, is_missing);
  if (first == limit) return std::nullopt;
  const auto last = std::find_if_not(
      first, first + std::min(static_cast<std::ptrdiff_t>(most), limit - first), is_missing);
  return Range{.first = static_cast<std::size_t>(first - frames_.begin()),
               .count = static_cast<std::size_t>(last - first)};
}

FrameTable::Range FrameTable::set_coming(Range range) {
  std::fill_n(frames_.begin() + static_cast<std::ptrdiff_t>(range.first), range.count,
              State::kComing);
  return range;
}

std::optional<FrameTable::Range> FrameTable::next_wanted() {
  for (const Range& want : wants_)
    if (const auto run = missing_run(want.first, want.end(), kMostAtOnce))
      return set_coming(*run);
  return std::nullopt;
}

std::optional<FrameTable::Range> FrameTable::next_ahead() {
  auto run = missing_run(std::min(ahead_, count()), count(), window_);
  if (!run) run = missing_run(0, count(), window_);
  if (!run) return std::nullopt;
  window_ = std::min(2 * window_, kMostAtOnce);
  return set_coming(*run);
}

void FrameTable::arrived(std::size_t frame) {
  if (frames_[frame] == State::kHere) return;
  frames_[frame] = State::kHere;
  --missing_;
}

void FrameTable::ended(Range range) {
  for (std::size_t frame = range.first; frame < range.end(); ++frame)
    if (frames_[frame] == State::kComing) frames_[frame] = State::kMissing;
}

}  // namespace kvcachefs
