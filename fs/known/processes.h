// Which process a calling thread belongs to, from /proc, kept for some seconds.
//
// FUSE names the calling thread (fuse_in_header::pid), in the pid namespace of the mount; 0 when
// the caller is not visible there. Fixed size. Any thread; the locks are leaves.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <mutex>

#include "fs/order/callers.h"

namespace kvcachefs {

class Processes {
 public:
  // process 0: not visible, or it has ended; or it serves NFS, and each of its calls may be another machine's. At most two
  // readings of /proc a thread in five seconds, some 20 us each.
  order::Caller caller(pid_t thread, std::int64_t now_ns);
  // As caller(): it is a thread of an NFS server (fs/known/nfs_server.h).
  bool serves_nfs(pid_t thread, std::int64_t now_ns);

 private:
  // A number may be another process's thread after that time.
  static constexpr std::int64_t kTrustNanos = 5'000'000'000;
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kSlots = 256;  // a shard; two threads in one slot take turns

  struct Slot {
    pid_t thread = 0;
    std::uint32_t process = 0;  // 0, too, where it serves NFS
    bool serves_nfs = false;
    std::int64_t read_ns = 0;
  };
  struct Shard {
    std::mutex mutex;
    std::array<Slot, kSlots> slots;
  };
  Slot look(pid_t thread, std::int64_t now_ns);

  std::array<Shard, kShards> shards_;
};

}  // namespace kvcachefs
