// What was dropped lately, and how much of everything was: for who asks why a file is gone.
//
// In memory: a restart forgets it. Of a name only a hash is kept, so that 8 MiB hold the last 150,000
// names. Any thread; its lock is a leaf.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string_view>

#include "fs/life/drop_reason.h"
#include "metadata/record.h"

namespace kvcachefs {

struct Dropped {
  DropReason reason = DropReason::kIncomplete;
  InodeNumber inode = 0;
  std::uint64_t size = 0;  // bytes, as last recorded
  UnixNanos when = 0;
  UnixNanos last_use = 0;  // 0: not known
};

struct DropCount {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};
using DropCounts = std::array<DropCount, kDropReasons>;

class DropHistory {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;

  // A name is gone. `path`: relative to the root.
  void add_name(std::string_view path, const Dropped& what);
  // All names of a file are.
  void count(DropReason reason, std::uint64_t bytes) noexcept;

  // The last time that name was dropped; nullopt: not among those kept. Takes a millisecond or two.
  [[nodiscard]] std::optional<Dropped> find(std::string_view path) const;
  // By reason, since the start.
  [[nodiscard]] DropCounts counts() const noexcept;

 private:
  struct Entry {
    std::uint64_t path = 0;  // its hash
    Dropped what;
  };
  static constexpr std::size_t kMost = kMostBytes / sizeof(Entry);
  struct Count {
    std::atomic<std::uint64_t> files{0};
    std::atomic<std::uint64_t> bytes{0};
  };

  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // oldest first
  std::array<Count, kDropReasons> counts_;
};

}  // namespace kvcachefs
