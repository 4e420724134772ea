// How many objects each device has: counted once, by a walk over the table beside the mount's work,
// and kept up to date from the commits that make and remove objects.
//
// Ids are given in increasing order, so the walk has one front: an object below it, or made since
// the begin, is in the count; one before it will be met. Removals are told before their commit and
// taken back if that fails: one that the walk has not reached is noted, whether or not the walk
// still reads its record, and so is never counted.
//
// Any thread; the lock is a leaf. Memory: what is removed before the walk has come by.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "metadata/record.h"

namespace kvcachefs {

struct ObjectPlace {
  ObjectId id = kNoObject;
  std::uint32_t device = 0;
  InodeNumber inode = 0;  // where that is known
};

class ObjectCount {
 public:
  // Ids from `first_new` on have not been given yet. Calls before this one change nothing.
  void begin(ObjectId first_new);
  // Before and after a commit.
  void leaving(std::span<const ObjectPlace> objects);
  void stayed(std::span<const ObjectPlace> objects);
  void came(std::span<const ObjectPlace> objects);
  // Of the walk: all records up to and with `last` were read, these are they.
  void passed(ObjectId last, std::span<const ObjectPlace> objects);
  // The walk is at its end.
  void passed_all();
  // nullopt: not known yet.
  [[nodiscard]] std::optional<std::uint64_t> on(std::uint32_t device) const;

 private:
  [[nodiscard]] bool is_in(ObjectId id) const noexcept {
    return id >= first_new_ || id <= passed_;
  }
  void add(std::uint32_t device, std::int64_t change);

  mutable std::mutex mutex_;
  // Under mutex_.
  bool began_ = false;
  bool complete_ = false;
  ObjectId first_new_ = 0;
  ObjectId passed_ = 0;
  std::unordered_set<ObjectId> left_early_;
  std::vector<std::int64_t> counts_;
};

}  // namespace kvcachefs
