// ACL values come from any user: parsing one never crashes, and what was taken means the same
// when it is written, inherited and changed.
#include <cerrno>
#include <string_view>

#include "fs/acl/posix_acl.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {

bool acl(std::string_view input) {
  const auto acl = PosixAcl::parse(input);
  if (!acl.ok()) {
    require(acl.error().code == EINVAL || acl.error().code == EOPNOTSUPP);
    return false;
  }
  // The ids of entries that name nobody are not taken over.
  require(acl->encode().size() == input.size());
  const auto again = PosixAcl::parse(acl->encode());
  require(again.ok() && again->encode() == acl->encode());
  require((acl->mode_bits() & ~0777u) == 0);
  if (acl->empty()) return true;

  require((acl->least_mode() & ~acl->mode_bits()) == 0);
  require(!acl->equals_mode() || acl->least_mode() == acl->mode_bits());
  const mode_t asked = static_cast<unsigned char>(input[4]) * 2u & 0777u;
  mode_t mode = 01000 | asked;
  const PosixAcl made = acl->inherit(mode);
  require((mode & 0777) == made.mode_bits() && (mode & ~0777u) == 01000);
  require((mode & 0777 & ~asked) == 0 && (mode & 0777 & ~acl->mode_bits()) == 0);
  PosixAcl changed = *acl;
  changed.set_mode_bits(asked);
  require(changed.mode_bits() == asked);
  require(PosixAcl::parse(changed.encode()).ok());
  return true;
}

}  // namespace kvcachefs::fuzz
