// Directories go to the pool: those that were made here, empty or not, and those above a file with the
// first file in them; whose they are and what they were told goes along. A part of write-back.
//
//     mkdir, rename, something told ──► catalog: to be published ──► made there, others are told
//
// A directory that is made with its first block (NameLook::fan_out) comes with that block, unless it
// was told something. Before the pool is asked to make a directory its row says so (PoolCopy with the
// number 0): who removes it here meanwhile leaves a tombstone.
//
// Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/pool/pool_service.h"
#include "backend/pool/pool_transfer.h"
#include "fs/node/core.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

class DirectoryDescriber {
 public:
  DirectoryDescriber(Core& core, PoolService& service) : core_(core), service_(service) {}

  // Says of the directories on this path that nobody here knows to be on the pool whose they are, and
  // notes that they are there. They stand there. `directory`: the lowest; `made`: those that a
  // publication has made. What fails is tried again with the next file.
  Result<void> describe(std::string_view path, InodeNumber directory,
                        const std::vector<MadeDirectory>& made);

  // kStays: it is not to be published (any more). kObstructed: something else has its path there.
  enum class Outcome : std::uint8_t { kDone, kStays, kObstructed, kLater };
  // Makes a directory there that is to be published, if it is not there, and describes it. Errors:
  // those of any call to the pool, ENOSPC, EDQUOT, EROFS, EIO, EBADMSG.
  Result<Outcome> publish(Inode& inode);

 private:
  static constexpr std::chrono::milliseconds kCallDeadline{5000};
  using Link = std::pair<InodeNumber, std::string>;

  // One of those above a file, or the directory that is published.
  struct Found {
    InodeNumber number = 0;
    Link link;
    DirectoryOwner owner;
  };
  Result<std::vector<Found>> find_unknown(std::string_view path, InodeNumber directory,
                                          const std::vector<MadeDirectory>& made);
  Result<bool> goes_there(Inode& inode, const SharedLink& link);
  Result<bool> begin(Inode& inode, const SharedLink& link);
  Result<void> give_up(Inode& inode);
  Result<void> tell_known(Inode& inode, const SharedName& shared);
  Result<void> note(const Found& found, std::uint64_t fileid);

  Core& core_;
  PoolService& service_;
};

}  // namespace kvcachefs
