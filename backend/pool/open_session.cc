#include "backend/pool/open_session.h"

namespace kvcachefs {

Result<std::unique_ptr<PoolSession>> open_pool_session(const PoolUri& uri, Deadline deadline,
                                                       const NfsCommon& common,
                                                       OtherWriters others) {
  return uri.kind == PoolUri::Kind::kNfs ? open_nfs_session(uri, deadline, common)
                                         : open_dir_session(uri.path, others);
}

}  // namespace kvcachefs
