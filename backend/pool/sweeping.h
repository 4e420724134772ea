// What the sweeps of a pool have in common: each step is bounded by a number of files and by a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/pool/pool_session.h"

namespace kvcachefs {

struct Swept {
  std::uint64_t files = 0;
  bool all = true;  // false: there is more, for the next call
};

// Half of the time until a deadline. A sweep that takes longer goes on with its next call, so that its caller does not
// take the pool for dead.
class Allowance {
 public:
  explicit Allowance(Deadline deadline) {
    const auto now = std::chrono::steady_clock::now();
    until_ = now + (deadline - now) / 2;
  }
  [[nodiscard]] bool is_used_up() const { return std::chrono::steady_clock::now() >= until_; }

 private:
  Deadline until_;
};

// Names of one directory that are looked at in one call.
inline constexpr std::size_t kMostListed = 65'536;

// Gives the names in a directory, kMostListed at most; none where no directory is. Errors: those of any call.
[[nodiscard]] Result<std::vector<std::string>> list_some(PoolSession& session,
                                                         const std::string& directory,
                                                         Deadline deadline);

}  // namespace kvcachefs
