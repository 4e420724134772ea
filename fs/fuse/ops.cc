#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

void op_init(void* user_data, fuse_conn_info* connection) noexcept {
  static_cast<OperationContext*>(user_data)->negotiate(*connection);
}

// Not there on purpose: access (the kernel checks permissions), getlk, setlk and flock (locks
// stay in the kernel, where a waiter holds no thread of ours), bmap, poll (every file is always
// ready), write_buf (a plain write finds its data in the request already).
fuse_lowlevel_ops make_table() noexcept {
  fuse_lowlevel_ops table{};
  table.init = op_init;
  table.lookup = op_lookup;
  table.forget = op_forget;
  table.forget_multi = op_forget_multi;
  table.getattr = op_getattr;
#ifdef KVCACHEFS_HAVE_STATX
  table.statx = op_statx;
#endif
  table.setattr = op_setattr;
  table.statfs = op_statfs;
  table.readlink = op_readlink;
  table.mknod = op_mknod;
  table.mkdir = op_mkdir;
  table.unlink = op_unlink;
  table.rmdir = op_rmdir;
  table.symlink = op_symlink;
  table.rename = op_rename;
  table.link = op_link;
  table.open = op_open;
  table.create = op_create;
  set_tmpfile(table, op_tmpfile);
  table.release = op_release;
  table.read = op_read;
  table.write = op_write;
  table.lseek = op_lseek;
  table.flush = op_flush;
  table.fsync = op_fsync;
  table.fsyncdir = op_fsyncdir;
  table.fallocate = op_fallocate;
  table.copy_file_range = op_copy_file_range;
  table.opendir = op_opendir;
  table.releasedir = op_releasedir;
  table.readdir = op_readdir;
  table.readdirplus = op_readdirplus;
  table.setxattr = op_setxattr;
  table.getxattr = op_getxattr;
  table.listxattr = op_listxattr;
  table.removexattr = op_removexattr;
  table.ioctl = op_ioctl;
  return table;
}

}  // namespace

const fuse_lowlevel_ops& operation_table() noexcept {
  static const fuse_lowlevel_ops table = make_table();
  return table;
}

}  // namespace kvcachefs
