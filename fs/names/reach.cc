#include "fs/names/reach.h"

#include <climits>
#include <vector>

#include "fs/acl/posix_acl.h"
#include "fs/names/credentials.h"

namespace kvcachefs {
namespace {

constexpr unsigned kSearch = 1;
// A name has at least one byte: deeper than that no path leads.
constexpr std::size_t kDeepest = PATH_MAX;

}  // namespace

bool Reach::is_privileged() {
  // Of a caller that cannot be seen (another pid namespace) the user alone is known.
  if (!privileged_)
    privileged_ = caller_.pid <= 0 ? caller_.uid == 0
                                   : has_capability(caller_, CAP_DAC_READ_SEARCH) ||
                                         has_capability(caller_, CAP_DAC_OVERRIDE);
  return *privileged_;
}

bool Reach::in_group(gid_t group) {
  const auto [at, is_new] = groups_.try_emplace(group, false);
  if (is_new) at->second = kvcachefs::in_group(caller_, group);
  return at->second;
}

Result<bool> Reach::may_search(InodeNumber directory) {
  const auto record = TRY(catalog_.find_inode(directory));
  if (!record) return false;
  const auto value = TRY(catalog_.find_xattr(directory, kAclAccess));
  if (value) {
    const PosixAcl acl = TRY(PosixAcl::parse(*value));
    if (!acl.empty())
      return acl.permits(kSearch, caller_.uid, record->uid, record->gid,
                         [this](gid_t group) { return in_group(group); });
  }
  unsigned bits = record->mode;
  if (caller_.uid == record->uid)
    bits >>= 6;
  else if ((record->mode >> 3 & 7) != (record->mode & 7) && in_group(record->gid))
    bits >>= 3;
  return (bits & kSearch) != 0;
}

Result<bool> Reach::may_enter(InodeNumber directory) {
  if (is_privileged()) return true;
  // Upwards, to one that is known.
  std::vector<InodeNumber> way;
  bool may = true;
  for (InodeNumber at = directory;;) {
    if (const auto known = known_.find(at); known != known_.end()) {
      may = known->second;
      break;
    }
    if (way.size() > kDeepest) return false;
    way.push_back(at);
    if (at == kRootInode) break;
    const auto links = TRY(catalog_.list_links(at, 1));
    if (links.empty()) {
      may = false;
      break;
    }
    at = links.front().first;
  }
  for (auto step = way.rbegin(); step != way.rend(); ++step) {
    may = may && TRY(may_search(*step));
    known_[*step] = may;
  }
  return may;
}

}  // namespace kvcachefs
