// A pool on an NFS server, over NFS version 3 (RFC 1813), without the kernel's client.
#pragma once

#include <memory>

#include "backend/pool/pool_governor.h"
#include "backend/pool/pool_session.h"
#include "backend/pool/pool_uri.h"

namespace kvcachefs {

class NfsDirectories;

// What the sessions that go the same way have in common; null: each has its own.
struct NfsCommon {
  std::shared_ptr<PoolGovernor> governor = nullptr;
  std::shared_ptr<NfsDirectories> directories = nullptr;
};

[[nodiscard]] NfsCommon make_nfs_common(std::shared_ptr<PoolGovernor> governor);

// Mounts the export and opens the directory below it; which part of the path is the export is tried out. Errors:
// ETIMEDOUT, ENOTCONN (no server there, or none that speaks NFS version 3); ENOENT, ENOTDIR, EACCES (what the
// server says of the path).
[[nodiscard]] Result<std::unique_ptr<PoolSession>> open_nfs_session(
    const PoolUri& uri, Deadline deadline, const NfsCommon& common = {});

}  // namespace kvcachefs
