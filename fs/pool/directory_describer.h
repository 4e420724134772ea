// Whose the directories above a file are goes to the pool with the first file in them. A part of write-back.
//
// Any thread.
#pragma once

#include <chrono>
#include <vector>

#include "backend/pool/pool_service.h"
#include "backend/pool/pool_transfer.h"
#include "fs/node/core.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

class DirectoryDescriber {
 public:
  DirectoryDescriber(Core& core, PoolService& service) : core_(core), service_(service) {}

  // Says it of all that nobody here knows to be on the pool, and notes that they are. `shared`: the file, which is there;
  // `directory`: where it is; `made`: those that its publication has made. What fails is tried again with the next file.
  void describe(const SharedName& shared, InodeNumber directory,
                const std::vector<MadeDirectory>& made);

 private:
  static constexpr std::chrono::milliseconds kCallDeadline{5000};

  void note_owner(InodeNumber number, const DirectoryOwner& owner, std::uint64_t fileid);

  Core& core_;
  PoolService& service_;
};

}  // namespace kvcachefs
