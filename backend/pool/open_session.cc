#include "backend/pool/open_session.h"

#include <utility>

#include "backend/pool/dir_session.h"
#include "backend/pool/nfs_session.h"

namespace kvcachefs {

Result<std::unique_ptr<PoolSession>> open_pool_session(const PoolUri& uri, Deadline deadline,
                                                       std::shared_ptr<PoolGovernor> governor) {
  return uri.kind == PoolUri::Kind::kNfs ? open_nfs_session(uri, deadline, std::move(governor))
                                         : open_dir_session(uri.path);
}

}  // namespace kvcachefs
