#include "fs/known/processes.h"

#include "backend/base/proc_status.h"
#include "fs/known/nfs_server.h"

namespace kvcachefs {

Processes::Slot Processes::look(pid_t thread, std::int64_t now_ns) {
  const auto number = static_cast<std::uint32_t>(thread);
  Shard& shard = shards_[number % kShards];
  {
    const std::lock_guard lock(shard.mutex);
    const Slot& slot = shard.slots[number / kShards % kSlots];
    if (slot.thread == thread && now_ns - slot.read_ns < kTrustNanos) return slot;
  }
  const pid_t process = process_of(thread);
  const bool serves_nfs = is_nfs_server(process);
  const Slot found{.thread = thread,
                   .process = serves_nfs ? 0 : static_cast<std::uint32_t>(process),
                   .serves_nfs = serves_nfs,
                   .read_ns = now_ns};
  const std::lock_guard lock(shard.mutex);
  shard.slots[number / kShards % kSlots] = found;
  return found;
}

order::Caller Processes::caller(pid_t thread, std::int64_t now_ns) {
  if (thread <= 0) return {};
  return {.tid = static_cast<std::uint32_t>(thread), .process = look(thread, now_ns).process};
}

bool Processes::serves_nfs(pid_t thread, std::int64_t now_ns) {
  return thread > 0 && look(thread, now_ns).serves_nfs;
}

}  // namespace kvcachefs
