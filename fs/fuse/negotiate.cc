#include "fs/fuse/negotiate.h"

namespace kvcachefs {

Offers negotiate(fuse_conn_info& connection, const Wishes& wishes) noexcept {
  Offers offers;
  // Directories are read and searched by many at once; entries come with their attributes when
  // that pays.
  want_capability(connection, FUSE_CAP_PARALLEL_DIROPS);
  want_capability(connection, FUSE_CAP_READDIRPLUS);
  want_capability(connection, FUSE_CAP_READDIRPLUS_AUTO);
  want_capability(connection, FUSE_CAP_NO_OPENDIR_SUPPORT);
  if (wishes.remembers_symlinks) want_capability(connection, FUSE_CAP_CACHE_SYMLINKS);
  // Node ids are for ever, so that file handles (NFS, open_by_handle_at) survive forgetting and
  // remounting.
  want_capability(connection, FUSE_CAP_EXPORT_SUPPORT);
  // ACLs are ours to keep, and with them the umask ours to apply: a default ACL takes its
  // place.
  want_capability(connection, FUSE_CAP_POSIX_ACL);
  want_capability(connection, FUSE_CAP_DONT_MASK);
  want_capability(connection, FUSE_CAP_ATOMIC_O_TRUNC);
  want_capability(connection, FUSE_CAP_ASYNC_DIO);
#ifdef FUSE_CAP_HANDLE_KILLPRIV_V2
  // Else the kernel asks for security.capability before every single write.
  want_capability(connection, FUSE_CAP_HANDLE_KILLPRIV_V2);
#endif
#ifdef FUSE_CAP_DIRECT_IO_ALLOW_MMAP
  offers.direct_mmap = want_capability(connection, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
#endif
  // Nobody changes data behind the kernel's back unless we say so: a changed mtime must not
  // drop cached pages.
  refuse_capability(connection, FUSE_CAP_AUTO_INVAL_DATA);
  want_capability(connection, FUSE_CAP_EXPLICIT_INVAL_DATA);
  // The slowest way to write, and it switches passthrough off.
  refuse_capability(connection, FUSE_CAP_WRITEBACK_CACHE);
  refuse_capability(connection, FUSE_CAP_HANDLE_KILLPRIV);
  // Locks stay in the kernel: a waiter must not hold a thread.
  refuse_capability(connection, FUSE_CAP_POSIX_LOCKS);
  refuse_capability(connection, FUSE_CAP_FLOCK_LOCKS);
  // Requests are copied once, into memory of ours; splicing is slower.
  refuse_capability(connection, FUSE_CAP_SPLICE_READ);
  refuse_capability(connection, FUSE_CAP_SPLICE_WRITE);
  refuse_capability(connection, FUSE_CAP_SPLICE_MOVE);
  refuse_interrupts(connection);

#ifdef KVCACHEFS_HAVE_PASSTHROUGH
  if (wishes.passthrough) {
    offers.passthrough = want_capability(connection, FUSE_CAP_PASSTHROUGH);
    set_backing_depth(connection, wishes.stacked_backing ? 1 : 0);
  } else {
    refuse_capability(connection, FUSE_CAP_PASSTHROUGH);
  }
#endif
#ifdef KVCACHEFS_HAVE_IO_URING
  if (wishes.io_uring) {
    offers.io_uring = want_capability(connection, FUSE_CAP_OVER_IO_URING);
  } else {
    refuse_capability(connection, FUSE_CAP_OVER_IO_URING);
  }
#endif
#ifdef FUSE_CAP_ALLOW_IDMAP
  if (wishes.idmap) offers.idmap = want_capability(connection, FUSE_CAP_ALLOW_IDMAP);
#endif
  connection.max_write = static_cast<unsigned>(wishes.max_write);
  // Each of them may have to wait for a pool.
  connection.max_background = static_cast<unsigned>(wishes.most_background);
  return offers;
}

}  // namespace kvcachefs
