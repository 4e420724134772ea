#include "fs/names/directories.h"

#include <utility>

namespace kvcachefs {

// 0: it was removed, so that no name comes or goes any more.
std::uint64_t Directories::changes_of(InodeNumber directory) {
  const Result<InodePtr> inode = core_.table.get(directory);
  return inode.ok() ? (*inode)->changes.load() : 0;
}

OpenedDirectory Directories::open(InodeNumber directory, const Caller& caller) {
  OpenDirectory* opened = nullptr;
  {
    const std::lock_guard lock(mutex_);
    opened = &open_.emplace_back();
    opened->place_ = std::prev(open_.end());
  }
  opened->number_ = directory;
  const KernelListings::Grant grant =
      core_.listings.opened(opened->reader_, directory, changes_of(directory), monotonic_now());
  if (grant.is_unseen) opened->opening_ = core_.knowledge.opened_directory(caller.pid);
  return {.directory = opened, .remembers = grant.remembers, .is_unseen = grant.is_unseen};
}

void Directories::release(OpenDirectory& directory) {
  core_.listings.closed(directory.reader_);
  std::optional<Crawlers::Opening> opening;
  {
    const std::lock_guard lock(mutex_);
    opening = std::exchange(directory.opening_, std::nullopt);
    open_.erase(directory.place_);
  }
  if (opening) core_.knowledge.closed_directory(*opening);
}

bool Directories::begin_listing(OpenDirectory& directory, std::uint64_t after_cookie) {
  return core_.listings.reads(directory.reader_, after_cookie, changes_of(directory.number_),
                              monotonic_now());
}

void Directories::await_listing_begin(OpenDirectory& directory) {
  core_.listings.await_begin(directory.reader_);
}

ListingEnd Directories::end_listing(OpenDirectory& directory) {
  return core_.listings.ended(directory.reader_, changes_of(directory.number_),
                              monotonic_now());
}

ListingEnd Directories::await_listing_end(OpenDirectory& directory) {
  return core_.listings.await_end(directory.reader_);
}

void Directories::synced(OpenDirectory& directory) {
  std::optional<Crawlers::Opening> opening;
  {
    const std::lock_guard lock(mutex_);
    opening = std::exchange(directory.opening_, std::nullopt);
  }
  if (opening) core_.knowledge.synced_directory(*opening);
}

}  // namespace kvcachefs
