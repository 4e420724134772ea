#include "fs/known/processes.h"

#include "backend/base/proc_status.h"

namespace kvcachefs {

order::Caller Processes::caller(pid_t thread, std::int64_t now_ns) {
  if (thread <= 0) return {};
  const auto number = static_cast<std::uint32_t>(thread);
  Shard& shard = shards_[number % kShards];
  {
    const std::lock_guard lock(shard.mutex);
    const Slot& slot = shard.slots[number / kShards % kSlots];
    if (slot.thread == thread && now_ns - slot.read_ns < kTrustNanos)
      return {.tid = number, .process = slot.process};
  }
  const auto process = static_cast<std::uint32_t>(process_of(thread));
  const std::lock_guard lock(shard.mutex);
  shard.slots[number / kShards % kSlots] = {
      .thread = thread, .process = process, .read_ns = now_ns};
  return {.tid = number, .process = process};
}

}  // namespace kvcachefs
