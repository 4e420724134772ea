#include "fs/node/attributes.h"

#include <sys/sysmacros.h>

#include <algorithm>

namespace kvcachefs {

DataStamp stamp_of(const struct stat& backing) noexcept {
  return DataStamp{.size = static_cast<std::uint64_t>(backing.st_size),
                   .mtime = to_nanos(backing.st_mtim),
                   .ctime = to_nanos(backing.st_ctim)};
}

struct stat merge_attributes(InodeNumber number, const InodeRecord& record,
                             const struct stat* backing) noexcept {
  struct stat out {};
  out.st_ino = number;
  out.st_mode = record.mode;
  out.st_nlink = record.nlink;
  out.st_uid = record.uid;
  out.st_gid = record.gid;
  out.st_rdev = static_cast<dev_t>(record.rdev);
  out.st_blksize = 4096;
  if (backing != nullptr) {
    out.st_size = backing->st_size;
    out.st_blocks = backing->st_blocks;
    out.st_atim = backing->st_atim;
    out.st_mtim = backing->st_mtim;
    out.st_ctim = to_timespec(std::max(record.ctime, to_nanos(backing->st_ctim)));
    note_file_time(to_nanos(backing->st_mtim));
    note_file_time(to_nanos(backing->st_ctim));
    return out;
  }
  out.st_size = S_ISLNK(record.mode)   ? static_cast<off_t>(record.target.size())
                : S_ISDIR(record.mode) ? 4096
                                       : 0;
  out.st_blocks = S_ISDIR(record.mode) ? 8 : 0;
  out.st_atim = to_timespec(record.atime);
  out.st_mtim = to_timespec(record.mtime);
  out.st_ctim = to_timespec(record.ctime);
  return out;
}

double attribute_timeout(const Inode& inode) noexcept {
  if (inode.writers > 0 || inode.may_be_stored_to) return 0;
  inode.is_remembered.store(true, std::memory_order_relaxed);
  return kAttributeTimeout;
}

InodeRecord touched(const InodeRecord& directory, UnixNanos now, int links) {
  InodeRecord next = directory;
  next.mtime = now;
  next.ctime = now;
  next.nlink = static_cast<std::uint32_t>(static_cast<int>(next.nlink) + links);
  return next;
}

}  // namespace kvcachefs
