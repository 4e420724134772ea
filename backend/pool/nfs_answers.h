// What a server's answers say, in our terms (RFC 1813).
#pragma once

#include <optional>

#include "backend/base/result.h"
#include "backend/pool/libnfs.h"
#include "backend/pool/pool_session.h"

namespace kvcachefs {

// The errno of a status that is not NFS3_OK; section 2.6.
[[nodiscard]] int errno_of(nfsstat3 status) noexcept;
// `what` of a call that the server has refused.
[[nodiscard]] Result<void> check(nfsstat3 status, const char* what);

[[nodiscard]] PoolStatus status_of(const fattr3& attributes) noexcept;
// nullopt: the server gave none.
[[nodiscard]] std::optional<PoolStatus> status_of(const post_op_attr& attributes);

}  // namespace kvcachefs
