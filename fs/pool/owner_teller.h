// Puts owners and modes that were given here on the pool, what directories were told here, and what is to be kept there, and
// tells the others. A part of write-back: what is to be told is
// a table of the catalog, so that a restart goes on with it.
//
// Of one thread, which starts others for the calls.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "backend/pool/pool_service.h"
#include "fs/node/core.h"
#include "fs/pool/put_off.h"

namespace kvcachefs {

class OwnerTeller {
 public:
  OwnerTeller(Core& core, PoolService& service) : core_(core), service_(service) {}

  // False: something is left. Errors: those that are the pool's (pool_error.h), EIO, EBADMSG.
  Result<bool> tell_all(const std::function<bool()>& is_stopping);

 private:
  static constexpr std::size_t kBatch = 256;
  static constexpr std::chrono::milliseconds kCallDeadline{5000};

  // As many calls at once: each waits for the server's disk.
  static constexpr std::size_t kAtOnce = 4;

  // Any thread.
  Result<bool> tell(const std::string& path, const OwnerChange& change);
  Result<InodePtr> inode_of(const std::string& path, std::uint64_t fileid);
  // What it was told here, as the pool has it.
  Result<std::vector<PoolWord>> words_of(const InodePtr& inode, const OwnerChange& change);
  Result<bool> forget(const std::string& path, const OwnerChange& change, const InodePtr& inode,
                      const std::vector<PoolWord>& words);

  Core& core_;
  PoolService& service_;
  PutOff put_off_;  // by the hash of the path
};

}  // namespace kvcachefs
