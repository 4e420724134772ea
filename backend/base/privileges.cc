#include "backend/base/privileges.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace kvcachefs {
namespace {

// The kernel gives 64 bits in two of these.
using Sets = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

Result<void> drop_from_bounds(std::span<const int> kept) {
  for (int capability = 0; capability <= CAP_LAST_CAP; ++capability) {
    if (std::find(kept.begin(), kept.end(), capability) != kept.end()) continue;
    const int is_there = ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
    if (is_there < 0 && errno == EINVAL) return {};  // an older kernel has fewer
    if (is_there == 1 && ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
      return fail_errno("drop a capability for what is executed");
  }
  return {};
}

}  // namespace

Result<void> drop_capabilities(std::span<const int> kept) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("no_new_privs");
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 && errno != EINVAL)
    return fail_errno("clear the ambient capabilities");
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  Sets sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return fail_errno("capget");
  // A process without CAP_SETPCAP has none there that it could gain.
  const bool may_bound =
      (sets[CAP_TO_INDEX(CAP_SETPCAP)].effective & CAP_TO_MASK(CAP_SETPCAP)) != 0;
  if (may_bound) TRY(drop_from_bounds(kept));
  Sets wanted{};
  for (const int capability : kept) {
    const auto bit = static_cast<unsigned>(capability);
    wanted[CAP_TO_INDEX(bit)].permitted |= CAP_TO_MASK(bit);
  }
  for (std::size_t i = 0; i < sets.size(); ++i) {
    sets[i].permitted &= wanted[i].permitted;
    sets[i].effective = sets[i].permitted;
    sets[i].inheritable = 0;
  }
  if (::syscall(SYS_capset, &header, sets.data()) != 0) return fail_errno("capset");
  return {};
}

}  // namespace kvcachefs
