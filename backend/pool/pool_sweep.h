// What goes from a pool beside its trash (pool_trash.h): what dead nodes have left.
//
// Calls block, with a session of the calling thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/random.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_session.h"
#include "backend/pool/sweeping.h"

namespace kvcachefs {

// Lists the directories of checksums, one of which is asked for with each file: sessions know the way there from then on.
// Those that are not there are made, as many as there is time for. Errors: of any call.
[[nodiscard]] Result<void> find_sums_directories(PoolSession& session, Deadline deadline);

// By the server's clock.
struct TimesThatGo {
  UnixNanos before = INT64_MIN;
  UnixNanos after = INT64_MAX;
  static TimesThatGo all() noexcept { return {.before = INT64_MAX, .after = INT64_MAX}; }
};
// Removes at most `most` unfinished files of a node to which somebody wrote last at a time that goes.
[[nodiscard]] Result<Swept> sweep_temporaries(PoolSession& session, const Uuid& node,
                                              const TimesThatGo& times, std::size_t most,
                                              Deadline deadline);

// Removes a node's change logs with numbers below `below`.
[[nodiscard]] Result<void> sweep_logs(PoolSession& session, const Uuid& node,
                                      std::uint64_t below, Deadline deadline);

// Removes what a dead node has left, its heartbeat last, and at most `most` files of it. `beaten`: the time of its last
// heartbeat; one that beat since then lives, and nothing of it goes. Others may do the same at once.
[[nodiscard]] Result<Swept> sweep_node(PoolSession& session, const Uuid& node, UnixNanos beaten,
                                       std::size_t most, Deadline deadline);

// Names the sharing out among these nodes, in whatever order.
[[nodiscard]] std::uint64_t pool_share(std::vector<Uuid> nodes);

// Of the living nodes the one that evicts below a directory at the top of the pool: all come to the same, and a node
// that comes or goes moves only what is its own (rendezvous hashing, Thaler and Ravishankar 1996). Precondition: there
// is one.
[[nodiscard]] const Uuid& owner_of(std::string_view top,
                                   const std::vector<Uuid>& living) noexcept;

}  // namespace kvcachefs
