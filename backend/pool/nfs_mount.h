// An export of an NFS server, as its MOUNT program gives it (RFC 1813, appendix I).
#pragma once

#include <string>

#include "backend/pool/nfs_connection.h"
#include "backend/pool/nfs_file.h"
#include "backend/pool/pool_uri.h"

namespace kvcachefs {

struct NfsExport {
  NfsHandle root;
  std::string below;  // what of the URI's path is below it; empty: nothing
};

// The longest part of the URI's path that is an export, from the whole path on: servers let a directory below an export
// be mounted, or do not. Errors: ETIMEDOUT, ENOTCONN, and what the server says of the path.
[[nodiscard]] Result<NfsExport> mount_nfs_export(const PoolUri& uri, const NfsUser& user,
                                                 Deadline deadline);

}  // namespace kvcachefs
