// How well a learner's parent links match the trace that its calls were made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fs/order/learner.h"
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

// The name under which a learner is told of a block.
inline std::uint64_t name_of(BlockId block) noexcept { return std::uint64_t{block} + 1; }

// Tells a learner of every call.
void tell(order::Learner& learner, const Call& call);

// Runs the whole trace in virtual time. The timeout: see VirtualExecutor.
Grades grade_links(const Trace& trace, const Runtime& runtime, std::size_t in_flight,
                   std::uint64_t seed, std::int64_t entry_timeout_ns);

}  // namespace kvcachefs::sim
