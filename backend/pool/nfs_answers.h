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
// The same of a call in a directory whose attributes came with the answer. Of one that was removed servers say that there
// is nothing in it while they still know it by its handle: that is ESTALE here.
[[nodiscard]] Result<void> check_in(const post_op_attr& directory, nfsstat3 status,
                                    const char* what);

[[nodiscard]] PoolStatus status_of(const fattr3& attributes) noexcept;
// nullopt: the server gave none.
[[nodiscard]] std::optional<PoolStatus> status_of(const post_op_attr& attributes);
// Of what is made.
[[nodiscard]] sattr3 with_mode(std::uint32_t mode) noexcept;

}  // namespace kvcachefs
