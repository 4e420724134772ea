// Whether a process serves NFS: it calls for machines that nobody here sees, and asks for a sync of all they write.
#pragma once

#include <sys/types.h>

namespace kvcachefs {

// NFS-Ganesha, or the kernel's nfsd. Asks /proc, some 20 us. False for one that cannot be seen.
[[nodiscard]] bool is_nfs_server(pid_t process);

}  // namespace kvcachefs
