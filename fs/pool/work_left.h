// What a part of write-back has left to do when it gives others their turn, and where it goes on then.
#pragma once

#include <cstdint>
#include <utility>

namespace kvcachefs {

// The greater, the sooner.
enum class WorkLeft : std::uint8_t {
  kNothing,
  kLater,  // what could not be done now: after a pause
  kMore,   // what has not been tried yet: at once
};

// Where a walk over a table stands that is done in parts. Key{} is before all. Of one thread.
template <class Key>
class WalkInParts {
 public:
  // What was there before is met, too, before ended() says that nothing is left: what came meanwhile may be before
  // where it stands.
  void begin_round() { again_ = !(after_ == Key{}); }
  [[nodiscard]] const Key& after() const noexcept { return after_; }
  // The last of the rows that this part has.
  void met(const Key& last) { after_ = last; }
  // Something that it has met could not be done now.
  void left_some() noexcept { all_ = false; }
  // There are no more rows; the next part begins with the first.
  [[nodiscard]] WorkLeft ended() {
    after_ = Key{};
    const bool all = std::exchange(all_, true);
    if (std::exchange(again_, false)) return WorkLeft::kMore;
    return all ? WorkLeft::kNothing : WorkLeft::kLater;
  }
  // It failed: from the first on, the next time.
  void restart() {
    after_ = Key{};
    all_ = true;
  }

 private:
  Key after_{};
  bool again_ = false;
  bool all_ = true;
};

}  // namespace kvcachefs
