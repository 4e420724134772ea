#include "fs/acl/posix_acl.h"

#include <algorithm>
#include <cstring>

namespace kvcachefs {
namespace {

constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kEntryBytes = 8;
constexpr std::uint32_t kNoId = UINT32_MAX;

template <class T>
T little(const char* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(
        value | static_cast<T>(static_cast<T>(static_cast<unsigned char>(at[i])) << (8 * i)));
  }
  return value;
}

template <class T>
void put_little(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
}

// Entries are in the order of their tags, each of the unnamed ones at most once, and named ones
// need a mask.
bool is_valid(const std::vector<AclEntry>& entries) {
  std::uint16_t last = 0;
  bool named = false;
  unsigned seen = 0;
  for (const AclEntry& entry : entries) {
    const std::uint16_t tag = entry.tag;
    const bool is_named = tag == AclEntry::kUser || tag == AclEntry::kGroup;
    const bool known = is_named || tag == AclEntry::kUserObj || tag == AclEntry::kGroupObj ||
                       tag == AclEntry::kMask || tag == AclEntry::kOther;
    if (!known || (entry.perm & ~7u) != 0 || tag < last || (tag == last && !is_named))
      return false;
    if (is_named && entry.id == kNoId) return false;
    named = named || is_named;
    seen |= tag;
    last = tag;
  }
  constexpr unsigned kRequired = AclEntry::kUserObj | AclEntry::kGroupObj | AclEntry::kOther;
  return (seen & kRequired) == kRequired && (!named || (seen & AclEntry::kMask) != 0);
}

}  // namespace

Result<PosixAcl> PosixAcl::parse(std::string_view value) {
  if (value.size() < kHeaderBytes) return fail(EINVAL, "ACL: too short");
  if (little<std::uint32_t>(value.data()) != kVersion) return fail(EOPNOTSUPP, "ACL: version");
  value.remove_prefix(kHeaderBytes);
  if (value.size() % kEntryBytes != 0) return fail(EINVAL, "ACL: length");
  PosixAcl acl;
  for (; !value.empty(); value.remove_prefix(kEntryBytes)) {
    AclEntry entry{.tag = little<std::uint16_t>(value.data()),
                   .perm = little<std::uint16_t>(value.data() + 2),
                   .id = little<std::uint32_t>(value.data() + 4)};
    if (entry.tag != AclEntry::kUser && entry.tag != AclEntry::kGroup) entry.id = kNoId;
    acl.entries_.push_back(entry);
  }
  if (!acl.entries_.empty() && !is_valid(acl.entries_)) return fail(EINVAL, "ACL: entries");
  return acl;
}

std::string PosixAcl::encode() const {
  std::string out;
  put_little(out, kVersion);
  for (const AclEntry& entry : entries_) {
    put_little(out, entry.tag);
    put_little(out, entry.perm);
    put_little(out, entry.id);
  }
  return out;
}

AclEntry* PosixAcl::find(std::uint16_t tag) noexcept {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [tag](const AclEntry& entry) { return entry.tag == tag; });
  return at == entries_.end() ? nullptr : &*at;
}

const AclEntry* PosixAcl::find(std::uint16_t tag) const noexcept {
  return const_cast<PosixAcl*>(this)->find(tag);
}

mode_t PosixAcl::mode_bits() const noexcept {
  const AclEntry* user = find(AclEntry::kUserObj);
  const AclEntry* mask = find(AclEntry::kMask);
  const AclEntry* group = mask != nullptr ? mask : find(AclEntry::kGroupObj);
  const AclEntry* other = find(AclEntry::kOther);
  if (user == nullptr || group == nullptr || other == nullptr) return 0;
  return static_cast<mode_t>(user->perm << 6 | group->perm << 3 | other->perm);
}

mode_t PosixAcl::least_mode() const noexcept {
  const AclEntry* user = find(AclEntry::kUserObj);
  const AclEntry* mask = find(AclEntry::kMask);
  const AclEntry* group = find(AclEntry::kGroupObj);
  const AclEntry* other = find(AclEntry::kOther);
  if (user == nullptr || group == nullptr || other == nullptr) return 0;
  const int most = mask != nullptr ? mask->perm : 7;
  int of_group = group->perm & most;
  int of_others = other->perm;
  // Without the list a named user counts as one of the group, or of the others; the members of a named group as others.
  for (const AclEntry& entry : entries_) {
    if (entry.tag == AclEntry::kUser) of_group &= entry.perm;
    if (entry.tag == AclEntry::kUser || entry.tag == AclEntry::kGroup)
      of_others &= entry.perm & most;
  }
  return static_cast<mode_t>(user->perm << 6 | of_group << 3 | of_others);
}

bool PosixAcl::equals_mode() const noexcept {
  return std::none_of(entries_.begin(), entries_.end(), [](const AclEntry& entry) {
    return entry.tag == AclEntry::kUser || entry.tag == AclEntry::kGroup ||
           entry.tag == AclEntry::kMask;
  });
}

void PosixAcl::set_mode_bits(mode_t mode) noexcept {
  AclEntry* mask = find(AclEntry::kMask);
  AclEntry* group = mask != nullptr ? mask : find(AclEntry::kGroupObj);
  if (AclEntry* user = find(AclEntry::kUserObj)) user->perm = (mode >> 6) & 7;
  if (group != nullptr) group->perm = (mode >> 3) & 7;
  if (AclEntry* other = find(AclEntry::kOther)) other->perm = mode & 7;
}

PosixAcl PosixAcl::inherit(mode_t& mode) const {
  PosixAcl made = *this;
  const mode_t left = mode & made.mode_bits();
  made.set_mode_bits(left);
  mode = (mode & ~static_cast<mode_t>(0777)) | left;
  return made;
}

}  // namespace kvcachefs
