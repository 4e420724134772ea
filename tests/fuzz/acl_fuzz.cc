// ACL values come from any user: parsing one never crashes, and what was taken means the same
// when it is written, inherited and changed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fs/acl/posix_acl.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using kvcachefs::PosixAcl;
  const std::string_view value(reinterpret_cast<const char*>(data), size);
  const auto acl = PosixAcl::parse(value);
  if (!acl.ok()) {
    require(acl.error().code == EINVAL || acl.error().code == EOPNOTSUPP);
    return 0;
  }
  const auto again = PosixAcl::parse(acl->encode());
  require(again.ok() && again->encode() == acl->encode());
  require((acl->mode_bits() & ~0777u) == 0);
  if (acl->empty()) return 0;

  mode_t mode = size > 4 ? data[4] * 2u & 0777u : 0777u;
  const mode_t asked = mode;
  const PosixAcl made = acl->inherit(mode);
  require(made.mode_bits() == mode && (mode & ~asked) == 0);
  require((mode & ~acl->mode_bits()) == 0);
  PosixAcl changed = *acl;
  changed.set_mode_bits(asked);
  require(changed.mode_bits() == asked);
  require(PosixAcl::parse(changed.encode()).ok());
  return 0;
}
