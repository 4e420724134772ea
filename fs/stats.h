// Counters of what the kernel has asked: how often, how long it took, how often the answer was
// an error.
//
// Recording is a few relaxed additions on a cache line that few other threads use; whatever
// costs more (sums, rates, percentiles) is done by the one who asks. There is no timer: an idle
// mount does nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace kvcachefs {

enum class Operation : std::uint8_t {
  kLookup,
  kForget,
  kGetattr,
  kSetattr,
  kReadlink,
  kMknod,
  kMkdir,
  kUnlink,
  kRmdir,
  kSymlink,
  kRename,
  kLink,
  kOpen,
  kCreate,
  kTmpfile,
  kRead,
  kWrite,
  kFlush,
  kRelease,
  kFsync,
  kFallocate,
  kLseek,
  kCopyFileRange,
  kReaddir,
  kReaddirplus,
  kFsyncdir,
  kStatfs,
  kSetxattr,
  kGetxattr,
  kListxattr,
  kRemovexattr,
  kIoctl,
};
inline constexpr std::size_t kOperations = static_cast<std::size_t>(Operation::kIoctl) + 1;

// "lookup", "copy_file_range", …
[[nodiscard]] std::string_view operation_name(Operation operation) noexcept;

// Latencies are shown as how many were below each of these bounds: 1 us, 4 us, … 17 s.
inline constexpr std::size_t kLatencyBounds = 13;
[[nodiscard]] constexpr double latency_bound_s(std::size_t bound) noexcept {
  return static_cast<double>(std::uint64_t{1024} << 2 * bound) / 1e9;
}

struct OperationStats {
  std::string_view name;
  std::uint64_t count = 0;   // answered, errors included
  std::uint64_t errors = 0;  // answered with an error that is not an ordinary "there is none"
  double per_second = 0;     // over the last kRateSeconds whole seconds
  double p50_us = 0;         // of all answers since the mount, within 10 %
  double p99_us = 0;
  double seconds = 0;  // all of them took together
  std::array<std::uint64_t, kLatencyBounds> below{};
};

// Calls that were answered with ENOSPC: nothing could go for what they wanted to store.
struct Refusals {
  std::uint64_t calls = 0;
  std::int64_t last_ns = 0;  // when the last one was, of the monotonic clock
};

class Stats {
 public:
  static constexpr unsigned kRateSeconds = 10;

  Stats();

  // Both times are of the monotonic clock, in nanoseconds. Any thread.
  void record(Operation operation, std::int64_t began_ns, std::int64_t ended_ns,
              bool failed) noexcept;

  // A call is answered with ENOSPC at that time. Any thread.
  void refused(std::int64_t now_ns) noexcept {
    refused_last_ns_.store(now_ns, std::memory_order_relaxed);
    refused_.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] Refusals refusals() const noexcept {
    return {.calls = refused_.load(std::memory_order_relaxed),
            .last_ns = refused_last_ns_.load(std::memory_order_relaxed)};
  }

  // One entry for every operation that was seen at least once, in the order of Operation.
  // `now_ns` is of the same clock. Any thread; concurrent recording may be seen in part.
  [[nodiscard]] std::vector<OperationStats> snapshot(std::int64_t now_ns) const;

 private:
  // Latencies from 256 ns to 17 s, four buckets to each doubling; what is outside goes into the
  // outermost ones.
  static constexpr unsigned kFirstBit = 8;
  static constexpr unsigned kDoublings = 26;
  static constexpr std::size_t kBuckets = kDoublings * 4;
  // Answers per second, for the seconds that a rate needs: the second in the upper half, the
  // count in the lower.
  static constexpr std::size_t kSeconds = 16;
  static_assert(kSeconds > kRateSeconds + 1);
  // Threads share a shard only when there are more of them than shards.
  static constexpr std::size_t kShards = 16;

  struct Counters {
    std::array<std::atomic<std::uint64_t>, kBuckets> latency{};
    std::array<std::atomic<std::uint64_t>, kSeconds> seconds{};
    std::atomic<std::uint64_t> errors{0};
    std::atomic<std::uint64_t> nanos{0};
  };
  struct alignas(64) Shard {
    std::array<Counters, kOperations> operations{};
  };

  static std::size_t bucket_of(std::int64_t nanos) noexcept;
  static double bucket_start_us(std::size_t bucket) noexcept;
  static double percentile_us(const std::array<std::uint64_t, kBuckets>& latency,
                              std::uint64_t count, double share) noexcept;
  static std::size_t my_shard() noexcept;

  std::unique_ptr<Shard[]> shards_;
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::int64_t> refused_last_ns_{0};
};

}  // namespace kvcachefs
