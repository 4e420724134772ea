// A session to a pool of either kind.
#pragma once

#include <memory>

#include "backend/pool/dir_session.h"
#include "backend/pool/nfs_session.h"
#include "backend/pool/pool_session.h"
#include "backend/pool/pool_uri.h"

namespace kvcachefs {

// `common`: as for open_nfs_session(); what the kernel has mounted it governs itself. `others`:
// of a directory. Errors: those of open_dir_session() and open_nfs_session().
[[nodiscard]] Result<std::unique_ptr<PoolSession>> open_pool_session(
    const PoolUri& uri, Deadline deadline, const NfsCommon& common = {},
    OtherWriters others = OtherWriters::kTaken);

}  // namespace kvcachefs
