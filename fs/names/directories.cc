#include "fs/names/directories.h"

#include <utility>

namespace kvcachefs {

// 0: it was removed, so that no name comes or goes any more.
UnixNanos Directories::modified(InodeNumber directory) {
  const Result<InodePtr> inode = core_.table.get(directory);
  if (!inode.ok()) return 0;
  return (*inode)->shown().mtime;
}

OpenedDirectory Directories::open(InodeNumber directory, const Caller& caller) {
  OpenDirectory* opened = nullptr;
  {
    const std::lock_guard lock(mutex_);
    opened = &open_.emplace_back();
    opened->place_ = std::prev(open_.end());
  }
  opened->number_ = directory;
  const KernelListings::Grant grant = core_.listings.opened(
      opened->reader_, directory, modified(directory), core_.knowledge.now());
  if (grant.is_unseen) opened->opening_ = core_.knowledge.opened_directory(caller.pid);
  return {.directory = opened, .remembers = grant.remembers};
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

void Directories::begin_listing(OpenDirectory& directory, std::uint64_t after_cookie) {
  const UnixNanos time = after_cookie == 0 ? modified(directory.number_) : 0;
  core_.listings.reads(directory.reader_, after_cookie, time);
}

void Directories::end_listing(OpenDirectory& directory) {
  core_.listings.ended(directory.reader_);
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
