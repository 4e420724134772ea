// What stat(2) shows of an inode, put together from the catalog and the backing file.
#pragma once

#include <sys/stat.h>

#include "fs/node/core.h"

namespace kvcachefs {

[[nodiscard]] DataStamp stamp_of(const struct stat& backing) noexcept;

// Whether nothing has changed the bytes through a filesystem between the two: every way to do so moves
// the modification time. A ctime moves by itself, too (chmod).
[[nodiscard]] constexpr bool is_same_data(const DataStamp& a, const DataStamp& b) noexcept {
  return a.size == b.size && a.mtime == b.mtime;
}

// Whether a sealed file that looks so by now was made longer by who had it open when an earlier daemon ended: the kernel
// goes on writing for him.
[[nodiscard]] constexpr bool is_written_on(const InodeRecord& record,
                                           const DataStamp& now) noexcept {
  return (record.flags & kInodeMayGrow) != 0 && now.size > record.stamp.size &&
         now.mtime != record.stamp.mtime;
}

// The attributes of an inode whose record and (regular files) backing file's status are given.
[[nodiscard]] struct stat merge_attributes(InodeNumber number, const InodeRecord& record,
                                           const struct stat* backing) noexcept;

// A directory's record after a change in it at `now`; `links` is added to its link count.
[[nodiscard]] InodeRecord touched(const InodeRecord& directory, UnixNanos now, int links);

// How long the kernel may keep them: not at all while somebody may write unseen. Notes that
// they are about to be shown. The caller holds the lock of what is no directory.
[[nodiscard]] double attribute_timeout(const Inode& inode) noexcept;

// Name → inode, for files that are not a runtime's blocks.
inline constexpr double kEntryTimeout = 10.0;
inline constexpr double kAttributeTimeout = 10.0;
// With a pool: what others did to a name, or to its owner, may have been missed, and is asked for at a lookup.
inline constexpr double kPoolEntryTimeout = 1.0;
// The same for blocks and their temporaries, and for blocks that are not there: a name that the kernel
// remembers hides from us who looks it up, and in which order.
inline constexpr double kBlockTimeout = 1.0;
// The same of directories that a listing shows: long enough for who walks a tree, or removes it.
inline constexpr double kListedTimeout = 1.0;

}  // namespace kvcachefs
