// The inodes in memory, by number, and how often the kernel has looked each one up.
//
// Any thread. The table's locks are leaves: nothing is called while one is held.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "backend/base/result.h"
#include "fs/node/inode.h"
#include "metadata/catalog.h"

namespace kvcachefs {

class InodeTable {
 public:
  // `unreferenced` is called, with no lock held, when the last reference to an inode goes.
  using Unreferenced = std::function<void(const Inode&)>;
  InodeTable(Catalog& catalog, Unreferenced unreferenced);
  ~InodeTable();
  InodeTable(const InodeTable&) = delete;
  InodeTable& operator=(const InodeTable&) = delete;

  // The inode, from memory or from the catalog. Errors: ESTALE (there is none, or it has no
  // name left), EIO, EBADMSG.
  Result<InodePtr> get(InodeNumber number);
  // The inode if it is in memory.
  InodePtr find(InodeNumber number);
  // A new inode, before it is visible to anybody.
  InodePtr insert(InodeNumber number, InodeRecord record);

  // Counts one lookup by the kernel, which keeps the inode in memory until forget().
  void add_lookup(const InodePtr& inode);
  // Too large a count is cut at what was counted.
  void forget(InodeNumber number, std::uint64_t lookups);

  [[nodiscard]] std::uint64_t size() const noexcept {
    return size_.load(std::memory_order_relaxed);
  }
  // Lets go of everything the kernel still held (the mount has gone).
  void clear();

 private:
  struct Slot {
    std::weak_ptr<Inode> inode;
    InodePtr held;  // while lookups > 0
    std::uint64_t lookups = 0;
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<InodeNumber, Slot> slots;
    // Inodes that left memory: a record read before one left may be older than what it
    // committed.
    std::uint64_t departures = 0;
  };
  static constexpr std::size_t kShards = 64;

  Shard& shard_of(InodeNumber number) noexcept { return shards_[number % kShards]; }
  InodePtr wrap(std::unique_ptr<Inode> inode);
  void gone(Inode* inode) noexcept;

  Catalog& catalog_;
  Unreferenced unreferenced_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> size_{0};
};

}  // namespace kvcachefs
