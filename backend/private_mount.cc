#include "backend/private_mount.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace kvcachefs {
namespace {

std::uint64_t attribute_of(AccessTimes times) noexcept {
  switch (times) {
    case AccessTimes::kNever:
      return MOUNT_ATTR_NOATIME;
    case AccessTimes::kAlways:
      return MOUNT_ATTR_STRICTATIME;
    case AccessTimes::kAsBelow:
    case AccessTimes::kRelative:
      break;
  }
  return MOUNT_ATTR_RELATIME;
}

// By number: libc has them from 2.36 on, under a header that excludes the kernel's.
Result<void> set_attributes(int directory, const char* path, unsigned flags,
                            mount_attr attributes) {
  if (::syscall(SYS_mount_setattr, directory, path, flags, &attributes, sizeof attributes) != 0)
    return fail_errno("mount_setattr");
  return {};
}

}  // namespace

Result<UniqueFd> open_privately(int directory, AccessTimes times) {
  const UniqueFd tree(static_cast<int>(::syscall(
      SYS_open_tree, directory, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)));
  if (!tree) return fail_errno("open_tree");
  TRY(set_attributes(tree.get(), "", AT_EMPTY_PATH,
                     {.attr_set = attribute_of(times),
                      .attr_clr = MOUNT_ATTR__ATIME,
                      .propagation = 0,
                      .userns_fd = 0}));
  UniqueFd opened(::openat(tree.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) return fail_errno("a mount of our own");
  return opened;
}

Result<void> set_mount_flags(const char* path, AccessTimes times, bool follows_symlinks) {
  mount_attr attributes{.attr_set = 0, .attr_clr = 0, .propagation = 0, .userns_fd = 0};
  if (times != AccessTimes::kAsBelow) {
    attributes.attr_set |= attribute_of(times);
    attributes.attr_clr |= MOUNT_ATTR__ATIME;
  }
  if (!follows_symlinks) attributes.attr_set |= MOUNT_ATTR_NOSYMFOLLOW;
  return set_attributes(AT_FDCWD, path, AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, attributes);
}

}  // namespace kvcachefs
