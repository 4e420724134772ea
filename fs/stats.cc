#include "fs/stats.h"

#include <algorithm>
#include <bit>

#include "backend/base/clock.h"

namespace kvcachefs {

namespace {

constexpr std::array<std::string_view, kOperations> kOperationNames = {
    "lookup",      "forget",   "getattr",   "setattr",  "readlink",        "mknod",
    "mkdir",       "unlink",   "rmdir",     "symlink",  "rename",          "link",
    "open",        "create",   "tmpfile",   "read",     "write",           "flush",
    "release",     "fsync",    "fallocate", "lseek",    "copy_file_range", "readdir",
    "readdirplus", "fsyncdir", "statfs",    "setxattr", "getxattr",        "listxattr",
    "removexattr", "ioctl"};

}  // namespace

std::string_view operation_name(Operation operation) noexcept {
  return kOperationNames[static_cast<std::size_t>(operation)];
}

Stats::Stats() : shards_(std::make_unique<Shard[]>(kShards)) {}

std::size_t Stats::my_shard() noexcept {
  static std::atomic<std::size_t> next{0};
  thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed) % kShards;
  return mine;
}

std::size_t Stats::bucket_of(std::int64_t nanos) noexcept {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(nanos, 1));
  const unsigned top_bit = static_cast<unsigned>(std::bit_width(value)) - 1;
  if (top_bit < kFirstBit) return 0;
  const std::size_t quarter = (value >> (top_bit - 2)) & 3;
  return std::min<std::size_t>((top_bit - kFirstBit) * 4 + quarter, kBuckets - 1);
}

double Stats::bucket_start_us(std::size_t bucket) noexcept {
  const auto doubling = static_cast<double>(std::uint64_t{1} << (kFirstBit + bucket / 4));
  return doubling * (1.0 + static_cast<double>(bucket % 4) / 4.0) / 1000.0;
}

void Stats::record(Operation operation, std::int64_t began_ns, std::int64_t ended_ns,
                   bool failed) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Counters& counters = shards_[my_shard()].operations[static_cast<std::size_t>(operation)];
  counters.latency[bucket_of(ended_ns - began_ns)].fetch_add(1, kRelaxed);
  counters.nanos.fetch_add(
      static_cast<std::uint64_t>(std::max<std::int64_t>(ended_ns - began_ns, 0)), kRelaxed);
  if (failed) counters.errors.fetch_add(1, kRelaxed);

  const auto second = static_cast<std::uint64_t>(ended_ns / kNanosPerSecond) & 0xffffffffu;
  std::atomic<std::uint64_t>& slot = counters.seconds[second % kSeconds];
  std::uint64_t seen = slot.load(kRelaxed);
  // The slot of an older second is taken over; of several threads that try, one wins and the
  // others add.
  while ((seen >> 32) != second) {
    if (slot.compare_exchange_weak(seen, (second << 32) | 1, kRelaxed)) return;
  }
  slot.fetch_add(1, kRelaxed);
}

double Stats::percentile_us(const std::array<std::uint64_t, kBuckets>& latency,
                            std::uint64_t count, double share) noexcept {
  const double rank = share * static_cast<double>(count);
  double below = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    const auto here = static_cast<double>(latency[bucket]);
    if (here > 0 && below + here >= rank) {
      const double start = bucket_start_us(bucket);
      const double width = bucket_start_us(bucket + 1) - start;
      return start + width * (rank - below) / here;
    }
    below += here;
  }
  return bucket_start_us(kBuckets);
}

std::vector<OperationStats> Stats::snapshot(std::int64_t now_ns) const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  // The current second is not over and would pull the rate down.
  const auto now = static_cast<std::uint64_t>(now_ns / kNanosPerSecond) & 0xffffffffu;
  std::vector<OperationStats> all;
  for (std::size_t i = 0; i < kOperations; ++i) {
    OperationStats one{.name = kOperationNames[i]};
    std::array<std::uint64_t, kBuckets> latency{};
    std::uint64_t recent = 0;
    std::uint64_t nanos = 0;
    for (std::size_t s = 0; s < kShards; ++s) {
      const Counters& counters = shards_[s].operations[i];
      one.errors += counters.errors.load(kRelaxed);
      nanos += counters.nanos.load(kRelaxed);
      for (std::size_t b = 0; b < kBuckets; ++b) {
        const std::uint64_t n = counters.latency[b].load(kRelaxed);
        latency[b] += n;
        one.count += n;
      }
      for (const auto& slot : counters.seconds) {
        const std::uint64_t seen = slot.load(kRelaxed);
        const std::uint64_t age = now - (seen >> 32);
        if (age >= 1 && age <= kRateSeconds) recent += seen & 0xffffffffu;
      }
    }
    if (one.count == 0) continue;
    one.per_second = static_cast<double>(recent) / kRateSeconds;
    one.seconds = static_cast<double>(nanos) / kNanosPerSecond;
    std::uint64_t below = 0;
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      below += latency[bucket];
      // A bound is the end of every eighth bucket: two doublings.
      if (bucket % 8 == 7) one.below[bucket / 8] = below;
    }
    one.p50_us = percentile_us(latency, one.count, 0.50);
    one.p99_us = percentile_us(latency, one.count, 0.99);
    all.push_back(one);
  }
  return all;
}

}  // namespace kvcachefs
