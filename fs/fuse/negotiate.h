// What is agreed with the kernel at INIT: which capabilities are asked for, and why some are
// not.
#pragma once

#include <cstddef>

#include "fs/fuse/libfuse.h"

namespace kvcachefs {

struct Wishes {
  bool passthrough = true;
  bool io_uring = true;
  // The mount can be mounted once more with other ids. Requests then do not say who calls
  // (caller_ids.h).
  bool idmap = false;
  // The kernel may answer readlink: not where each one moves an access time.
  bool remembers_symlinks = true;
  // The first device is on a stacked filesystem (overlayfs): ours then cannot be stacked upon
  // itself.
  bool stacked_backing = false;
  std::size_t max_write = 0;
  // Requests that the kernel has under way of read-ahead and of asynchronous direct I/O.
  std::size_t most_background = 0;
};

struct Offers {
  // A shared mapping of a file that is open for direct I/O works.
  bool direct_mmap = false;
  bool passthrough = false;
  bool io_uring = false;
  bool idmap = false;
};

// Settles the connection. Runs in libfuse's init callback.
Offers negotiate(fuse_conn_info& connection, const Wishes& wishes) noexcept;

}  // namespace kvcachefs
