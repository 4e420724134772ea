#include "backend/pool/nfs_mount.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/pool/libnfs.h"
#include "backend/pool/nfs_answers.h"

namespace kvcachefs {
namespace {

Result<NfsHandle> mount_path(NfsConnection& connection, std::string path, Deadline deadline) {
  std::optional<Result<NfsHandle>> mounted;
  TRY(connection.send(
      [&](rpc_context* rpc, void* call) {
        return rpc_mount3_mnt_async(rpc, NfsConnection::answer_to, path.data(), call);
      },
      [&](const void* result) {
        if (result == nullptr) return;
        const auto& answer = *static_cast<const mountres3*>(result);
        // RFC 1813, 5.1.5: these are numbered as their NFS counterparts.
        if (answer.fhs_status != MNT3_OK) {
          mounted.emplace(fail(errno_of(static_cast<nfsstat3>(answer.fhs_status)),
                               "pool: the server does not let the export be mounted"));
          return;
        }
        const auto& handle = answer.mountres3_u.mountinfo.fhandle;
        nfs_fh3 same{};
        same.data.data_len = handle.fhandle3_len;
        same.data.data_val = handle.fhandle3_val;
        mounted.emplace(handle_of(same));
      }));
  TRY(connection.run(deadline));
  if (!mounted) return fail(ENOTCONN, "pool: no answer");
  return *mounted;
}

}  // namespace

Result<NfsExport> mount_nfs_export(const PoolUri& uri, const NfsUser& user, Deadline deadline) {
  NfsConnection connection;
  TRY(connection.connect(
      uri.host, {.program = MOUNT_PROGRAM, .version = MOUNT_V3, .port = uri.mount_port}, user,
      deadline));
  std::string path = uri.path;
  while (true) {
    Result<NfsHandle> mounted = mount_path(connection, path, deadline);
    if (mounted.ok())
      return NfsExport{.root = std::move(*mounted),
                       .below = uri.path.substr(std::min(uri.path.size(), path.size() + 1))};
    const int code = mounted.error().code;
    const bool may_be_below = code == ENOENT || code == EACCES || code == ENOTDIR;
    const std::size_t slash = path.rfind('/');
    if (!may_be_below || path == "/" || slash == path.npos) return mounted.error();
    path.resize(std::max<std::size_t>(slash, 1));
    // The root of the server is an export of its own.
    if (path == "/" && uri.path != "/") return mounted.error();
  }
}

}  // namespace kvcachefs
