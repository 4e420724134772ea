// The users' metadata that no file's bytes stand behind: attributes, symlinks, names of a file
// beyond its first, fifos, sockets and devices. It is in the database, which takes its room from
// all files, and nobody can evict it. All users together have a sixteenth of the budget for it,
// and beyond that each his part (user_bytes.h). An inode with attributes counts as a block, as on
// ext4, and so does a symlink that ext4 would not keep in the inode; the rest by what a name
// takes. Directories are free: runtimes make one or two for each block, and those stay.
//
// Any thread; the lock is a leaf.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/base/result.h"
#include "fs/budget/user_bytes.h"
#include "metadata/record.h"

namespace kvcachefs {

class MetadataBytes {
 public:
  static constexpr std::uint64_t kBlock = 4096;
  // A name of some 100 bytes: its row, the one of the listing, and the way back.
  static constexpr std::uint64_t kName = 512;
  // As many bytes as ext4 has in an inode for a symlink (EXT4_N_BLOCKS * 4, fs/ext4/ext4.h).
  static constexpr std::size_t kShortTarget = 60;
  // Users that are written down.
  static constexpr std::size_t kMostUsers = 4096;
  static constexpr std::uint64_t kPartOfBudget = 16;

  void set_most_bytes(std::uint64_t budget);
  // Whether the inode may become one that counts for more. Errors: ENOSPC.
  Result<void> check(const InodeRecord& before, const InodeRecord& after) const;
  // It has: a new one had nothing before, InodeRecord{}.
  void changed(const InodeRecord& before, const InodeRecord& after);
  [[nodiscard]] std::uint64_t all() const;

  // For the next start, those who have most; and of the last run, before anything changes.
  [[nodiscard]] std::vector<std::pair<uid_t, std::uint64_t>> list() const;
  void restore(const std::vector<std::pair<uid_t, std::uint64_t>>& users);

  // A crash leaves a list that is some seconds old, and would be wrong for ever: all inodes are
  // counted anew. Between begin and end changes are counted beside the old sums; one thread
  // calls recount() for each inode as it was at the beginning.
  void begin_recount();
  void recount(const InodeRecord& inode);
  void end_recount(bool is_whole);

 private:
  mutable std::mutex mutex_;
  UserBytes bytes_;  // under mutex_
  // Of a count that is under way. Below 0: something went that is yet to be counted.
  std::optional<std::unordered_map<uid_t, std::int64_t>> recount_;  // under mutex_
};

}  // namespace kvcachefs
