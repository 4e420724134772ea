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
  // Whether a user may do all of `wanted` (bits of rwx) with something that belongs to `owner`
  // and `group`: acl(5), "access check algorithm". `in_group`: whether he is a member.
  template <class InGroup>
  [[nodiscard]] bool permits(unsigned wanted, uid_t user, uid_t owner, gid_t group,
                             InGroup in_group) const;

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

template <class InGroup>
bool PosixAcl::permits(unsigned wanted, uid_t user, uid_t owner, gid_t group,
                       InGroup in_group) const {
  const AclEntry* const mask = find(AclEntry::kMask);
  const auto gives = [&](const AclEntry& entry, bool is_masked) {
    const unsigned perm = is_masked && mask != nullptr ? entry.perm & mask->perm : entry.perm;
    return (perm & wanted) == wanted;
  };
  bool is_member = false;
  // In the order of a valid list: owner, users, group, groups, others.
  for (const AclEntry& entry : entries_) {
    switch (entry.tag) {
      case AclEntry::kUserObj:
        if (user == owner) return gives(entry, false);
        break;
      case AclEntry::kUser:
        if (user == entry.id) return gives(entry, true);
        break;
      case AclEntry::kGroupObj:
      case AclEntry::kGroup:
        if (!in_group(entry.tag == AclEntry::kGroupObj ? group : entry.id)) break;
        if (gives(entry, true)) return true;
        is_member = true;
        break;
      case AclEntry::kOther:
        return !is_member && gives(entry, false);
      default:
        break;
    }
  }
  return false;
}

}  // namespace kvcachefs
