// A pool on an NFS server, over NFS version 3 (RFC 1813), without the kernel's client.
#pragma once

#include <memory>

#include "backend/pool/pool_governor.h"
#include "backend/pool/pool_session.h"
#include "backend/pool/pool_uri.h"

namespace kvcachefs {

// Mounts the export and opens the directory below it; which part of the path is the export is tried out. Errors:
// ETIMEDOUT, ENOTCONN (no server there, or none that speaks NFS version 3); ENOENT, ENOTDIR, EACCES (what the
// server says of the path).
// `governor`: of all sessions that go the same way; null: one of its own.
[[nodiscard]] Result<std::unique_ptr<PoolSession>> open_nfs_session(
    const PoolUri& uri, Deadline deadline, std::shared_ptr<PoolGovernor> governor = nullptr);

}  // namespace kvcachefs
