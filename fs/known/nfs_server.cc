#include "fs/known/nfs_server.h"

#include <string>

#include "backend/base/proc_status.h"

namespace kvcachefs {

bool is_nfs_server(pid_t process) {
  const std::string name = proc_status(process, "Name");
  return name == "ganesha.nfsd" || name == "nfsd";
}

}  // namespace kvcachefs
