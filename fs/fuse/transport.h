// Which way requests come: FUSE-over-io_uring, or reads of /dev/fuse.
#pragma once

#include <string>

#include "fs/fuse/ring_shape.h"

namespace kvcachefs {

struct TransportPlan {
  bool io_uring = false;
  RingShape shape;  // of io_uring
  std::string why;
};

// Looks at the library, the kernel's switch (and turns it on when we may, and says so in the
// log) and the memory bound.
[[nodiscard]] TransportPlan plan_io_uring(std::size_t depth, std::size_t payload_bytes,
                                          std::size_t memory_bytes);

// Whether libfuse's ring threads run in this process: it goes on without them, silently, when
// they cannot start.
[[nodiscard]] bool ring_threads_run();

}  // namespace kvcachefs
