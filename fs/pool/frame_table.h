// Which frames of a file are here, which are on their way, and which should come next: those that somebody waits for,
// in the order in which he began to, and then those after them, in a window that doubles as long as it is read on.
//
// No I/O; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

namespace kvcachefs {

class FrameTable {
 public:
  static constexpr std::uint64_t kFrame = std::uint64_t{1} << 20;  // bytes
  // Frames that are asked for together: as many as a session has under way, twice.
  static constexpr std::size_t kMostAtOnce = 16;

  struct Range {
    std::size_t first = 0;
    std::size_t count = 0;
    [[nodiscard]] std::size_t end() const noexcept { return first + count; }
    bool operator==(const Range&) const = default;
  };
  using Want = std::list<Range>::iterator;

  // `size`: of the file, in bytes.
  explicit FrameTable(std::uint64_t size);

  [[nodiscard]] std::size_t count() const noexcept { return frames_.size(); }
  [[nodiscard]] std::size_t missing() const noexcept { return missing_; }
  // The frames of these bytes, as far as the file goes.
  [[nodiscard]] Range covering(std::uint64_t offset, std::uint64_t size) const noexcept;
  [[nodiscard]] std::uint64_t offset_of(Range range) const noexcept {
    return range.first * kFrame;
  }
  [[nodiscard]] std::uint64_t size_of(Range range) const noexcept;
  // All of them are here.
  [[nodiscard]] bool has(Range range) const noexcept;

  // Somebody waits for them, until unwant().
  Want want(Range range);
  void unwant(Want want) { wants_.erase(want); }
  [[nodiscard]] bool is_wanted() const noexcept { return !wants_.empty(); }
  // The frames that are waited for; one that several wait for is counted for each.
  [[nodiscard]] std::size_t wanted() const noexcept;

  // Frames to be asked for, which are on their way by that. nullopt: there are none. `ahead`: nobody waits for them.
  std::optional<Range> next_wanted();
  std::optional<Range> next_ahead();
  void arrived(std::size_t frame);
  // Those that did not arrive are not on their way any more.
  void ended(Range range);

 private:
  enum class State : std::uint8_t { kMissing, kComing, kHere };
  static constexpr std::size_t kFirstWindow = 2;

  // The missing frames from `from` on, at most so many of them, below `end`.
  [[nodiscard]] std::optional<Range> missing_run(std::size_t from, std::size_t end,
                                                 std::size_t most) const noexcept;
  Range set_coming(Range range);

  const std::uint64_t size_;
  std::vector<State> frames_;
  std::size_t missing_;  // not here
  std::list<Range> wants_;
  std::size_t ahead_ = 0;  // where it is read on
  std::size_t window_ = kFirstWindow;
};

}  // namespace kvcachefs
