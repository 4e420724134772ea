// Where the live entries of a long list begin.
//
// Removing an entry leaves a mark in the database that a walk steps over until compaction drops
// it. A walk from the start of a list whose first hundred thousand entries were removed would
// take a tenth of a second; so a walk that took long remembers the number of the first live
// entry (the floor), and the next one starts there. A write below the floor lowers it.
//
// A list is named by its owner (a directory's inode number, or one of the reserved names
// below), its entries by 64-bit numbers. Any thread may call any method. Bounded: what does not
// fit is forgotten, which costs only time.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace kvcachefs {

class Floors {
 public:
  static constexpr std::uint64_t kOrphanInodes = 0;
  static constexpr std::uint64_t kOrphanObjects = UINT64_MAX;

  struct Entry {
    std::uint64_t owner;
    std::uint64_t number;
  };

  // Held while entries are written, from before the write until it is visible.
  class Writing {
   public:
    Writing(Floors& floors, std::vector<Entry> entries);
    ~Writing();
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    Floors& floors_;
    const std::vector<Entry> entries_;
  };

  // Held while a list is walked from its start.
  class Walk {
   public:
    Walk(Floors& floors, std::uint64_t owner);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    // No entry is below it.
    [[nodiscard]] std::uint64_t floor() const noexcept { return floor_; }
    // Remembers that the walk met no entry below `first` (UINT64_MAX: none at all).
    void remember(std::uint64_t first);

   private:
    friend class Floors;
    Floors& floors_;
    const std::uint64_t owner_;
    std::uint64_t floor_ = 0;
    std::uint64_t lowest_written_ =
        UINT64_MAX;  // since the walk began; guarded by the shard's mutex
  };

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kFloorsPerShard = 64;

  struct Shard {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, std::uint64_t> floors;
    std::vector<Entry> writing;
    std::vector<Walk*> walks;
  };
  Shard& shard_of(std::uint64_t owner) noexcept { return shards_[owner % kShards]; }

  std::array<Shard, kShards> shards_;
};

}  // namespace kvcachefs
