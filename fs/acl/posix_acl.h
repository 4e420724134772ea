// POSIX access control lists as xattr values: parsing, and the rules that tie them to the mode
// bits (acl(5); the value's form is that of include/uapi/linux/posix_acl_xattr.h, version 2).
// Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/result.h"

namespace kvcachefs {

inline constexpr std::string_view kAclAccess = "system.posix_acl_access";
inline constexpr std::string_view kAclDefault = "system.posix_acl_default";

struct AclEntry {
  enum Tag : std::uint16_t {
    kUserObj = 1,
    kUser = 2,
    kGroupObj = 4,
    kGroup = 8,
    kMask = 16,
    kOther = 32
  };
  std::uint16_t tag = 0;
  std::uint16_t perm = 0;
  std::uint32_t id = 0;
  bool operator==(const AclEntry&) const = default;
};

class PosixAcl {
 public:
  // Error: EINVAL for anything but a valid list (order, required entries, mask), EOPNOTSUPP for
  // another version.
  static Result<PosixAcl> parse(std::string_view value);
  [[nodiscard]] std::string encode() const;
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

  // The permission bits of the mode that this list stands for.
  [[nodiscard]] mode_t mode_bits() const noexcept;
  // Permission bits that give nobody more than this list does, for those who do not have it.
  [[nodiscard]] mode_t least_mode() const noexcept;
  // Whether the mode bits alone say the same.
  [[nodiscard]] bool equals_mode() const noexcept;
  // chmod: the list that goes with these permission bits.
  void set_mode_bits(mode_t mode) noexcept;
  // The access list of something created with `mode` below a directory with this default list;
  // changes `mode` to what is left of it.
  [[nodiscard]] PosixAcl inherit(mode_t& mode) const;

 private:
  AclEntry* find(std::uint16_t tag) noexcept;
  [[nodiscard]] const AclEntry* find(std::uint16_t tag) const noexcept;

  std::vector<AclEntry> entries_;
};

}  // namespace kvcachefs
