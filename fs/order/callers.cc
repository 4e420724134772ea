#include "fs/order/callers.h"

#include <algorithm>

namespace kvcachefs::order {

Stamp Burst::stamp_at(std::int64_t now_ns) noexcept {
  if (stamp_ == 0 || now_ns - last_ns_ > kQuietNanos || now_ns - began_ns_ > kLongestNanos) {
    began_ns_ = now_ns;
    stamp_ = static_cast<Stamp>(std::max<std::int64_t>(now_ns, 0) / kNanosPerStamp) + 1;
  }
  last_ns_ = now_ns;
  return stamp_;
}

void OpenHeads::add(NameRef name, Stamp stamp, std::int64_t now_ns) {
  const Head head{.name = name.name, .stamp = stamp, .probed_ns = now_ns};
  if (heads_.size() < kHeads) {
    heads_.push_back(head);
    indices_.push_back(name.index);
    return;
  }
  heads_[next_] = head;
  indices_[next_] = name.index;
  next_ = (next_ + 1) % kHeads;
}

void OpenHeads::stored(NameRef name, std::int64_t now_ns) noexcept {
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    if (indices_[i] == name.index && heads_[i].name == name.name && heads_[i].stored_ns < 0)
      heads_[i].stored_ns = now_ns;
  }
}

void OpenHeads::renamed(NameRef from, std::uint64_t to) noexcept {
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    if (indices_[i] == from.index && heads_[i].name == from.name) heads_[i].name = to;
  }
}

Stamp OpenHeads::lowest(Stamp stamp, std::int64_t now_ns) noexcept {
  for (const Head& head : heads_) {
    if (is_open(head, now_ns)) stamp = std::min(stamp, head.stamp);
  }
  return stamp;
}

bool OpenHeads::is_open(const Head& head, std::int64_t now_ns) noexcept {
  return now_ns - head.probed_ns < kOldestNanos &&
         (head.stored_ns < 0 || now_ns - head.stored_ns < kAfterStoreNanos);
}

Callers::Callers() : threads_(kSets) { processes_[0] = std::make_unique<Process>(); }

ThreadStream& Callers::thread(const Caller& caller, std::int64_t now_ns) {
  // All invisible callers are one stream; no visible one has tid 0.
  const std::uint32_t tid = caller.process == 0 ? 0 : caller.tid;
  auto& set = threads_[tid % kSets];
  ThreadStream* oldest = &set[0];
  for (ThreadStream& stream : set) {
    if (stream.tid == tid && stream.process == caller.process && stream.time_ns != 0)
      return stream;
    if (stream.time_ns < oldest->time_ns) oldest = &stream;
  }
  *oldest = ThreadStream{};
  oldest->tid = tid;
  oldest->process = caller.process;
  oldest->time_ns = now_ns;
  return *oldest;
}

Process& Callers::process(std::uint32_t id, std::int64_t now_ns) {
  std::size_t slot = last_slot_;
  if (id == 0) {
    slot = 0;
  } else if (ids_[slot] != id) {
    const auto found = std::find(ids_.begin() + 1, ids_.end(), id);
    slot = static_cast<std::size_t>(found - ids_.begin());
    if (found == ids_.end()) {
      slot = slot_to_take(now_ns);
      ids_[slot] = id;
      processes_[slot] = std::make_unique<Process>();
      processes_[slot]->id = id;
      processes_[slot]->slot = static_cast<std::uint32_t>(slot);
    }
  }
  last_slot_ = slot;
  Process& process = *processes_[slot];
  process.time_ns = now_ns;
  ++process.calls;
  return process;
}

// Shell commands come and go by the hundred; they must not push out an engine that pauses. So a
// process with few calls goes first, and one that was idle for long counts as such.
std::size_t Callers::slot_to_take(std::int64_t now_ns) const noexcept {
  constexpr std::uint64_t kFewCalls = 256;
  constexpr std::int64_t kLongIdleNanos = 600'000'000'000;
  std::size_t best = 1;
  bool best_is_minor = false;
  for (std::size_t slot = 1; slot < kProcesses; ++slot) {
    const Process* process = processes_[slot].get();
    if (process == nullptr) return slot;
    const bool minor = process->calls < kFewCalls || now_ns - process->time_ns > kLongIdleNanos;
    const bool older = process->time_ns < processes_[best]->time_ns;
    if (slot == 1 || (minor && !best_is_minor) || (minor == best_is_minor && older)) {
      best = slot;
      best_is_minor = minor;
    }
  }
  return best;
}

}  // namespace kvcachefs::order
