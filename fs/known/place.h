// Where a directory hangs, and what it was told: what has to be known beside a name to recognise it,
// and to know what may be done with the file.
//
// Kept in the inodes of directories, that of the root here: the kernel never looks the root up, so its
// inode leaves memory with each call. A rename of a directory, or another layout or policy told, makes all
// of them out of date at once: that is rare, and a number to compare is all that it costs the rest.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs/known/direct_io.h"
#include "fs/known/pool_writes.h"
#include "fs/known/tenants.h"
#include "fs/layout/layout.h"
#include "fs/node/inode_table.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// Whether what the owner of a directory tells it holds for an owner's files below: for his own
// and root's. What root tells holds for all. Who has a directory decides nothing of others'
// files.
[[nodiscard]] constexpr bool may_tell(std::uint32_t teller, std::uint32_t owner) noexcept {
  return teller == 0 || owner == 0 || teller == owner;
}

// The values that directories on a path were told, the nearest first.
template <class Value>
class ToldOnPath {
 public:
  [[nodiscard]] std::optional<Value> holds_for(std::uint32_t owner) const noexcept {
    const auto* const nearest = nearest_for(owner);
    return nearest == nullptr ? std::nullopt : std::optional(nearest->second);
  }
  // Whether that is root's word.
  [[nodiscard]] bool is_roots_for(std::uint32_t owner) const noexcept {
    const auto* const nearest = nearest_for(owner);
    return nearest != nullptr && nearest->first == 0;
  }
  // Of a directory above all that were added before.
  void add(std::uint32_t teller, Value value) {
    // The nearer one holds for whoever this one could.
    for (const auto& [nearer, said] : told_)
      if (nearer == 0 || nearer == teller) return;
    told_.emplace_back(teller, value);
  }
  // All of those above.
  void add(const ToldOnPath& above) {
    for (const auto& [teller, value] : above.told_) add(teller, value);
  }

 private:
  // The teller and the value; null: nobody has told anything that holds.
  [[nodiscard]] const std::pair<std::uint32_t, Value>* nearest_for(
      std::uint32_t owner) const noexcept {
    for (const auto& told : told_)
      if (may_tell(told.first, owner)) return &told;
    return nullptr;
  }

  std::vector<std::pair<std::uint32_t, Value>> told_;
};

struct Place {
  // Relative to the root, without a slash before or behind it; empty where it is too long.
  std::string path;
  bool is_too_long = false;       // 4096 bytes: nothing below it has a path, or is recognised
  ToldOnPath<FilePolicy> policy;  // fs/known/file_policy.h
  ToldOnPath<std::chrono::seconds> ttl;
  // Each by the nearest directory that was told, from this one up.
  std::optional<Runtime> told;
  std::optional<DirectIo> direct_io;
  std::optional<PoolWrites> pool_writes;
  TenantSlot tenant = 0;    // fs/known/tenants.h; find_place() does not say
  std::uint64_t age = 0;    // of Places; it holds as long as that has not changed. 0: not kept
  std::uint32_t depth = 0;  // directories above it
};

// Directories above a new one, or one that is moved; deeper is ENAMETOOLONG. A walk up is as
// long.
inline constexpr std::uint32_t kMostDepth = 1024;

class Places {
 public:
  Places(Catalog& catalog, InodeTable& table, Tenants& tenants)
      : catalog_(catalog), table_(table), tenants_(tenants), age_(new_age()) {}

  // Where a path is that can be said. Null: it is too long, or the directory has no name left.
  // Errors: as at().
  Result<std::shared_ptr<const Place>> of(InodeNumber directory);
  // The place, however long the path is. Null: the directory has no name left. Errors: EIO,
  // EBADMSG, ESTALE; ENAMETOOLONG: deeper than 4 * kMostDepth, as trees that were moved may be;
  // kMustWait: so far below the places that are kept that a thread which refuses to wait does
  // not walk there.
  Result<std::shared_ptr<const Place>> at(InodeNumber directory);
  // After the commit of what changed paths, or what directories are told.
  void changed() noexcept { age_.store(new_age()); }
  // Of one process no two Places ever have the same.
  [[nodiscard]] std::uint64_t age() const noexcept { return age_.load(); }

 private:
  static std::uint64_t new_age() noexcept;
  // `inode` null: the root.
  std::shared_ptr<const Place> kept(Inode* inode);
  void keep(Inode* inode, std::shared_ptr<const Place> place);

  Catalog& catalog_;
  InodeTable& table_;
  Tenants& tenants_;
  std::mutex root_mutex_;  // a leaf
  std::shared_ptr<const Place> root_;
  std::atomic<std::uint64_t> age_;
};

// The same without anything kept in the inodes, for tools and for who asks rarely: for one call,
// with a bound on its steps. Anybody can make directories a thousand deep, and a thousand of them.
// One thread.
class PlaceWalk {
 public:
  // Of some two microseconds each, and seven times that where anybody was told anything.
  static constexpr std::size_t kMostSteps = 32'768;

  explicit PlaceWalk(Catalog& catalog, std::size_t most_steps = kMostSteps)
      : catalog_(catalog), steps_left_(most_steps) {}

  // Null: its path is too long, it has no name left, or the steps are spent. Errors: EIO, EBADMSG,
  // ESTALE.
  Result<std::shared_ptr<const Place>> find(InodeNumber directory);
  [[nodiscard]] bool is_spent() const noexcept { return steps_left_ == 0; }

 private:
  // Of places that are remembered, each with a path: at most a megabyte.
  static constexpr std::size_t kMostKnown = 256;
  // Of those above the one that was asked for, one in so many.
  static constexpr std::size_t kKnownEvery = 32;

  Catalog& catalog_;
  std::size_t steps_left_;
  std::unordered_map<InodeNumber, std::shared_ptr<const Place>> known_;
};
Result<std::shared_ptr<const Place>> find_place(Catalog& catalog, InodeNumber directory);

// A name in a place, as a path relative to the root; empty where that is too long.
[[nodiscard]] std::string path_in(const Place& place, std::string_view name);
// Whether the path is `top` or leads through it; all paths do through "".
[[nodiscard]] bool is_below(std::string_view path, std::string_view top) noexcept;
// Of an inode's first name, for messages; empty for the root. Errors: ENOENT (no name, or deeper than a
// path is long), EIO, EBADMSG.
Result<std::string> first_path(Catalog& catalog, InodeNumber inode);

// What the path is recognised as, if that is a block under its final name. The views are of `path`.
[[nodiscard]] std::optional<Recognized> finished_block(std::string_view path,
                                                       std::optional<Runtime> told);

}  // namespace kvcachefs
