// What the learner remembers of the threads and processes that call: their last call, the pace of
// their calls, how reliable their order is, the current burst.
//
// Bounded: 4,096 threads and 63 processes, the longest idle go first. Not thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fs/order/name_record.h"
#include "fs/order/reliability.h"

namespace kvcachefs::order {

// Who calls. Both numbers are those of the mount's pid namespace.
struct Caller {
  std::uint32_t tid = 0;
  // 0: invisible (another pid namespace, an NFS client): one stream a mount, which shows bursts
  // but no order.
  std::uint32_t process = 0;
};

// A name that may have been forgotten since.
struct NameRef {
  NameIndex index = kNoName;
  std::uint64_t name = 0;
};

// The calls of one thread.
struct ThreadStream {
  std::uint32_t tid = 0;
  std::uint32_t process = 0;
  NameRef previous;
  std::int64_t time_ns = 0;
  UsualGap usual_gap;
  std::uint16_t run = 0;
  CallBefore before = CallBefore::kProbeHit;
};

// The calls of one kind of a process, by whichever thread.
struct ProcessStream {
  NameRef previous;
  std::int64_t time_ns = 0;
  UsualGap usual_gap;
  CallBefore before = CallBefore::kProbeHit;
  std::uint32_t count = 0;
};

// Calls close together have one stamp: the whole prefix of a request is equally recent.
class Burst {
 public:
  Stamp stamp_at(std::int64_t now_ns) noexcept;

 private:
  // Longer than the pauses inside a request's calls, shorter than those between requests.
  static constexpr std::int64_t kQuietNanos = 100'000'000;
  static constexpr std::int64_t kLongestNanos = 1'000'000'000;

  std::int64_t began_ns_ = 0;
  std::int64_t last_ns_ = 0;
  Stamp stamp_ = 0;
};

// The misses whose stores may still come. A store that was never probed belongs to one of them: a
// runtime that stops probing at the first miss stores that name and all that follow it.
class OpenHeads {
 public:
  void add(NameRef name, Stamp stamp, std::int64_t now_ns);
  void stored(NameRef name, std::int64_t now_ns) noexcept;
  void renamed(NameRef from, std::uint64_t to) noexcept;
  // The lowest stamp of those that are open, at most `stamp`.
  Stamp lowest(Stamp stamp, std::int64_t now_ns) noexcept;

 private:
  // Several requests' worth; a scan of all is still below a microsecond.
  static constexpr std::size_t kHeads = 256;
  static constexpr std::int64_t kOldestNanos = 30'000'000'000;
  static constexpr std::int64_t kAfterStoreNanos = 1'000'000'000;

  struct Head {
    std::uint64_t name = 0;
    Stamp stamp = 0;
    std::int64_t probed_ns = 0;
    std::int64_t stored_ns = -1;
  };
  static bool is_open(const Head& head, std::int64_t now_ns) noexcept;

  // A ring once it is full. The indices are apart because every publication searches them.
  std::vector<NameIndex> indices_;
  std::vector<Head> heads_;
  std::size_t next_ = 0;
};

struct Process {
  std::uint32_t id = 0;
  std::uint32_t slot = 0;
  std::int64_t time_ns = 0;       // of its last call
  std::int64_t silent_until = 0;  // it enumerated: its lookups count for nothing
  std::uint64_t calls = 0;
  Reliability reliability;
  std::array<ProcessStream, kCallKinds> streams;
  Burst probes;
  Burst loads;
  OpenHeads open_heads;
};

class Callers {
 public:
  // Slot 0 is that of the invisible.
  static constexpr std::size_t kProcesses = 64;

  Callers();

  // Valid until the next call.
  ThreadStream& thread(const Caller& caller, std::int64_t now_ns);
  Process& process(std::uint32_t id, std::int64_t now_ns);
  [[nodiscard]] const Process* process_at(std::uint32_t slot) const noexcept {
    return processes_[slot].get();
  }
  [[nodiscard]] Process* process_at(std::uint32_t slot) noexcept {
    return processes_[slot].get();
  }

 private:
  // 64 processes of 64 threads. In sets of four, so that finding one and its successor is short.
  static constexpr std::size_t kSets = 1024;
  static constexpr std::size_t kWays = 4;

  std::size_t slot_to_take(std::int64_t now_ns) const noexcept;

  std::vector<std::array<ThreadStream, kWays>> threads_;
  std::array<std::uint32_t, kProcesses> ids_{};
  std::array<std::unique_ptr<Process>, kProcesses> processes_;
  std::size_t last_slot_ = 0;
};

}  // namespace kvcachefs::order
