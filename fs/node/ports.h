// What the filesystem asks of the side that speaks to the kernel; implemented in fs/fuse, faked
// in tests.
#pragma once

#include <cstdint>
#include <string>

#include "backend/base/result.h"
#include "metadata/record.h"

namespace kvcachefs {

// Backing ids: a number under which the kernel reads and writes a backing file itself (FUSE
// passthrough, kernel Documentation/filesystems/fuse/fuse-passthrough.rst). Any thread.
class BackingIds {
 public:
  virtual ~BackingIds() = default;
  // Whether passthrough is in force; decided when the kernel has answered INIT, constant from
  // then on.
  [[nodiscard]] virtual bool available() const noexcept = 0;
  // Registers the file behind `fd` (O_PATH is enough; it may be closed afterwards). Errors:
  // EPERM, ELOOP, ENOMEM, EIO: serve by the daemon.
  virtual Result<int> open(int fd) = 0;
  virtual void close(int id) noexcept = 0;
};

// Tells the kernel that what it has cached no longer holds. Any thread; never waits: the
// message is queued for the one thread that sends them, where nothing else is said. May be
// called while holding locks.
class KernelNotifications {
 public:
  virtual ~KernelNotifications() = default;
  virtual void invalidate_entry(InodeNumber parent, std::string name) = 0;
  // Unlike an entry's, the message waits for no lock that a caller may hold while he waits for us.
  virtual void invalidate_attributes(InodeNumber inode) = 0;
  // The same, and the kernel has taken it when this returns: for who changes them beside what a
  // call asked for, before that call is answered. The kernel does not drop its last reference
  // to the inode meanwhile, for the call has one.
  virtual void invalidate_attributes_at_once(InodeNumber inode) = 0;
  // The attributes, and the pages that the kernel has of its bytes.
  virtual void invalidate_data(InodeNumber inode) = 0;
  // Drops the names of a directory that the kernel remembers. When the kernel has taken it,
  // the sender calls Volume::listing_dropped() with the ticket; not if the message was lost.
  virtual void drop_listing(InodeNumber directory, std::uint64_t ticket) = 0;
};

}  // namespace kvcachefs
