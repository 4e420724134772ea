// What every handler needs to find: the volume, the counters, the workers for slow calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/base/fair_pool.h"
#include "fs/fuse/caller_ids.h"
#include "fs/fuse/change_pools.h"
#include "fs/fuse/disk_requests.h"
#include "fs/fuse/libfuse.h"
#include "fs/fuse/slow_calls.h"
#include "fs/stats.h"
#include "fs/volume.h"

namespace kvcachefs {

// One per session; libfuse hands it to the handlers as their user data.
struct OperationContext {
  Volume* volume = nullptr;
  Stats stats;
  // Runs the calls that may wait for a disk; their answers come from its threads, which live as
  // long as the session. At most `parked_limit` requests of a queue are there at a time
  // (fs/fuse/parking.h): of a ring with a pool half of the entries, without one seven eighths.
  SlowCalls* slow_calls = nullptr;
  std::atomic<std::size_t> parked_limit{0};
  std::atomic<std::size_t> parked{0};  // of all queues
  // Further requests of a queue that its thread has waited for in vain: of a ring half of the
  // entries that are left.
  std::atomic<std::size_t> beyond_limit{0};
  // Changes that threads which read /dev/fuse are doing.
  std::atomic<std::size_t> changes_of_readers{0};
  // Writes whose bytes were copied, as they wait (op_data.cc).
  std::atomic<std::size_t> copied_writes{0};
  // The reads and writes of files that the daemon serves, by disk.
  DiskRequests* disk_requests = nullptr;
  // Requests come by rings, with one thread for all that a CPU's callers ask; settled at INIT.
  std::atomic<bool> is_ring{false};
  // Runs the calls that change something, of a ring, and those that the threads which read
  // /dev/fuse do not do themselves. They are parked as slow calls are.
  ChangePools* change_calls = nullptr;
  // The one thread on which writers wait for room, in turns, so that they take none from
  // slow_calls. What waits there is parked, too, and takes at most three quarters of what may
  // be.
  FairPool* room_calls = nullptr;
  // The threads on which calls wait for the pool, and those for lookups. They take at most half of what may be parked.
  FairPool* pool_calls = nullptr;
  FairPool* lookup_calls = nullptr;
  // Where an fsync waits for the pool; it takes at most three quarters of what may be parked.
  FairPool* sync_calls = nullptr;
  // Those on which reads of a file wait that comes from the pool. They are counted by
  // themselves: what may be parked, further places, and they together leave a sixteenth of a
  // ring's entries. The kernel sends as many of its read-ahead at a time (max_background), and
  // one more on each queue of a ring (fuse_uring_flush_bg(), fs/fuse/dev_uring.c). A read of a
  // page that was not read ahead, or with O_DIRECT, may be one more: these are parked as other
  // calls that wait for the pool.
  FairPool* read_calls = nullptr;
  std::atomic<std::size_t> parked_reads{0};
  std::atomic<std::size_t> most_parked_reads{0};
  // Files that are open for direct I/O can be mapped shared; settled at INIT.
  std::atomic<bool> direct_mmap{false};
  CallerIds caller_ids;  // of requests without
  // Called with the kernel's INIT.
  std::function<void(fuse_conn_info&)> negotiate;
};

[[nodiscard]] inline OperationContext& context_of(fuse_req_t request) noexcept {
  return *static_cast<OperationContext*>(fuse_req_userdata(request));
}
[[nodiscard]] inline Volume& volume_of(fuse_req_t request) noexcept {
  return *context_of(request).volume;
}

[[nodiscard]] inline Caller caller_of(fuse_req_t request) {
  constexpr uid_t kUnsaid = static_cast<uid_t>(-1);
  const fuse_ctx* context = fuse_req_ctx(request);
  CallerIds::Ids ids{.uid = context->uid, .gid = context->gid};
  if (ids.uid == kUnsaid) ids = context_of(request).caller_ids.of(context->pid);
  return Caller{.uid = ids.uid, .gid = ids.gid, .pid = context->pid, .umask = context->umask};
}

}  // namespace kvcachefs
