// Directories while they are open: what the kernel may remember of their names (see
// fs/node/kernel_listings.h), and which process counts as a lister (fs/known/crawlers.h).
//
// Any thread.
#pragma once

#include <list>
#include <mutex>
#include <optional>

#include "fs/node/core.h"
#include "fs/volume.h"

namespace kvcachefs {

class OpenDirectory {
 private:
  friend class Directories;
  InodeNumber number_ = 0;
  ListingReader reader_;
  std::optional<Crawlers::Opening> opening_;  // under Directories::mutex_
  std::list<OpenDirectory>::iterator place_;
};

class Directories {
 public:
  explicit Directories(Core& core) : core_(core) {}

  // As the methods of the same names in fs/volume.h.
  OpenedDirectory open(InodeNumber directory, const Caller& caller);
  void release(OpenDirectory& directory);
  bool begin_listing(OpenDirectory& directory, std::uint64_t after_cookie);
  void await_listing_begin(OpenDirectory& directory);
  ListingEnd end_listing(OpenDirectory& directory);
  ListingEnd await_listing_end(OpenDirectory& directory);
  void synced(OpenDirectory& directory);

 private:
  std::uint64_t changes_of(InodeNumber directory);

  Core& core_;
  std::mutex mutex_;
  std::list<OpenDirectory> open_;  // under mutex_
};

}  // namespace kvcachefs
