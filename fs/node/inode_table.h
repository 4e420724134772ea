// The inodes in memory, by number, and how often the kernel has looked each one up.
//
// In memory are those that somebody uses (an open file, a request), those without a name that the
// kernel still knows, and the 65,536 looked up last. Of the others that the kernel knows, which
// may be millions, only the count is kept (some 40 bytes); their record is in the catalog.
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
#include <vector>

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

  // The inode, from memory or from the catalog. Errors: ESTALE (there is none, it has no name
  // left and nobody uses it, or it is disowned), EIO, EBADMSG.
  Result<InodePtr> get(InodeNumber number);
  // The inode if it is in memory.
  InodePtr find(InodeNumber number);
  // Whether it is in memory, or about to leave it: who lets go of it is not through yet.
  [[nodiscard]] bool holds(InodeNumber number);
  // Of a new inode, after the commit of its record.
  InodePtr insert(InodeNumber number, InodeRecord record);

  // Counts one lookup by the kernel; forget() takes it back.
  void add_lookup(const InodePtr& inode);
  // Too large a count is cut at what was counted. Returns true when none is left: the kernel
  // knows the inode no more.
  bool forget(InodeNumber number, std::uint64_t lookups);

  // Of a disowned inode: it leaves memory, and goes to the reaper, with its last user. The
  // kernel may believe in it for long, and has nothing to ask of it any more.
  void let_go(const Inode& inode);

  [[nodiscard]] std::uint64_t size() const noexcept {
    return size_.load(std::memory_order_relaxed);
  }
  // Lets go of everything the kernel still held (the mount has gone).
  void clear();

 private:
  static constexpr std::size_t kShards = 64;
  static constexpr std::size_t kRecent = 1024;  // in each shard

  struct Shard {
    std::mutex mutex;
    std::unordered_map<InodeNumber, std::weak_ptr<Inode>> inodes;
    std::unordered_map<InodeNumber, std::uint64_t> lookups;
    // Without a name, and known to the kernel: the catalog would no longer give them.
    std::unordered_map<InodeNumber, InodePtr> nameless;
    // Looked up last; a ring.
    std::vector<InodePtr> recent;
    std::size_t oldest = 0;
    // Inodes that left memory: a record read before one left may be older than what it
    // committed.
    std::uint64_t departures = 0;
  };
  Shard& shard_of(InodeNumber number) noexcept { return shards_[number % kShards]; }
  InodePtr wrap(std::unique_ptr<Inode> inode);
  void gone(Inode* inode) noexcept;

  Catalog& catalog_;
  Unreferenced unreferenced_;
  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> size_{0};
};

}  // namespace kvcachefs
