// How well a learner's parent links match the trace that its calls were made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "fs/order/learner.h"
#include "fs/order/note.h"
#include "tests/sim/engine.h"
#include "tests/sim/runtime.h"
#include "tests/sim/virtual_executor.h"

namespace kvcachefs::sim {

// Of the blocks that have a parent in truth, as they were after so many sightings.
struct Grade {
  std::size_t blocks = 0;
  std::size_t linked = 0;
  std::size_t exact = 0;
  std::size_t wrong_chain = 0;  // neither before nor after the block in any prefix

  [[nodiscard]] double coverage() const noexcept { return share(linked, blocks); }
  // Of those with a link.
  [[nodiscard]] double exactness() const noexcept { return share(exact, linked); }
  [[nodiscard]] double wrong() const noexcept { return share(wrong_chain, linked); }

 private:
  static double share(std::size_t part, std::size_t whole) noexcept {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

struct Grades {
  Grade first;
  Grade second;
  std::size_t calls = 0;
};

// What is true of a trace's blocks.
class Truth {
 public:
  explicit Truth(const Trace& trace);

  [[nodiscard]] bool is_root(BlockId block) const noexcept { return trace_.is_root(block); }
  // Counts a block whose link is this one.
  void grade(BlockId block, std::optional<BlockId> linked, Grade& grade) const;

 private:
  [[nodiscard]] bool is_above(BlockId ancestor, BlockId block) const;

  const Trace& trace_;
  std::vector<std::uint32_t> depths_;
};

// Grades each block when it was sighted for the second time, or as soon after that as it is stored:
// what has no file has nothing to read a link from. Any thread.
class SecondSights {
 public:
  using LinkOf = std::function<std::optional<BlockId>(BlockId)>;
  // `link_of` is called by the thread that makes the second sighting, or publishes.
  SecondSights(const Trace& trace, LinkOf link_of);

  void looked_up(BlockId block);
  void published(BlockId block);
  [[nodiscard]] bool is_stored(BlockId block);
  [[nodiscard]] Grade grade();

 private:
  struct State {
    std::uint8_t sightings = 0;
    bool stored = false;
    bool graded = false;
  };
  void grade_if_due(BlockId block, std::unique_lock<std::mutex>& lock);

  const Truth truth_;
  const LinkOf link_of_;
  std::mutex mutex_;
  std::vector<State> states_;  // under mutex_
  Grade grade_;                // under mutex_
};

// The name under which a learner is told of a block.
inline std::uint64_t name_of(BlockId block) noexcept { return std::uint64_t{block} + 1; }

// What a learner, or a policy, is told of a call.
order::Note note_of(const Call& call);

// Runs the whole trace in virtual time. The timeout: see VirtualExecutor.
Grades grade_links(const Trace& trace, const Runtime& runtime, std::size_t in_flight,
                   std::uint64_t seed, std::int64_t entry_timeout_ns);

// The same at another pace, graded as it can be on a mount: by SecondSights, and a link to what is
// not stored is none.
Grade grade_second_sights(const Trace& trace, const Runtime& runtime, std::size_t in_flight,
                          std::uint64_t seed, std::int64_t entry_timeout_ns, const Pace& pace);

}  // namespace kvcachefs::sim
