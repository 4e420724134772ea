// Bytes by user, of which all together may have so many: beyond that a user may still have
// something at all, and his part, as much as each who has any would have. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace kvcachefs {

struct UserBytes {
  // A container's user may be 65,536 users.
  static constexpr std::size_t kMostParts = 16;

  std::uint64_t most = 0;  // 0: no bound
  std::uint64_t bytes = 0;
  std::unordered_map<uid_t, std::uint64_t> of_user;  // those who have any

  [[nodiscard]] bool lets_in(uid_t user, std::uint64_t more) const {
    if (most == 0 || bytes + more <= most) return true;
    const auto own = of_user.find(user);
    if (own == of_user.end()) return true;
    return own->second + more <= most / std::min(of_user.size(), kMostParts);
  }
  void add(uid_t user, std::uint64_t more) {
    if (more == 0) return;
    bytes += more;
    of_user[user] += more;
  }
  // No more than he has.
  void take(uid_t user, std::uint64_t less) {
    const auto own = of_user.find(user);
    if (own == of_user.end()) return;
    less = std::min(less, own->second);
    bytes -= less;
    own->second -= less;
    if (own->second == 0) of_user.erase(own);
  }
};

}  // namespace kvcachefs
