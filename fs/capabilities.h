// The capabilities that a mount uses. packaging/kvcachefs@.service.in says the same, and
// packaging/rights.md what each is for to who decides about it.
#pragma once

#include <linux/capability.h>

#include <array>

namespace kvcachefs {

inline constexpr std::array kMountCapabilities{
    CAP_SYS_ADMIN,  // mount(2), umount2(2), open_tree(2), and FUSE's passthrough (fuse_backing_open(), fs/fuse/passthrough.c)
    CAP_DAC_OVERRIDE,      // its directories, whoever they belong to
    CAP_DAC_READ_SEARCH,   // open_by_handle_at(2), of files on a dir:// pool
    CAP_FOWNER,            // modes and times of files there that others have put there
    CAP_SYS_PTRACE,        // in /proc: which process and user namespace a caller belongs to
    CAP_SYS_RESOURCE,      // as many open files as it needs; ext4's reserve
    CAP_NET_BIND_SERVICE,  // a port below 1024, which NFS servers ask for
};

}  // namespace kvcachefs
