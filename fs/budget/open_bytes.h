// How many bytes each user holds by having files open: they can not be evicted meanwhile,
// whoever has stored them.
//
// All users together hold three quarters of the budget, and of a tenant's files those whose
// they are not half of what the tenant may have. Beyond that a user may still hold one file,
// and his part of it (user_bytes.h).
//
// Any thread; the lock is a leaf. Memory: some 100 bytes a file and user who has it open.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "fs/budget/user_bytes.h"
#include "fs/known/tenants.h"
#include "metadata/record.h"

namespace kvcachefs {

class OpenBytes {
 public:
  using TenantBytes = std::array<std::uint64_t, order::kGroups>;

  // A file that is being opened, and by whom.
  struct Open {
    InodeNumber inode = 0;
    uid_t user = 0;
    bool is_owner = false;
    TenantSlot tenant = 0;
    std::uint64_t bytes = 0;  // that it occupies here
  };

  // Counts one open descriptor until its end.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept {
      end();
      of_ = std::exchange(other.of_, nullptr);
      open_ = other.open_;
      return *this;
    }
    ~Hold() { end(); }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return open_.bytes; }
    [[nodiscard]] TenantSlot tenant() const noexcept { return open_.tenant; }
    [[nodiscard]] uid_t user() const noexcept { return open_.user; }

   private:
    friend class OpenBytes;
    Hold(OpenBytes& of, const Open& open) : of_(&of), open_(open) {}
    void end() noexcept;

    OpenBytes* of_ = nullptr;
    Open open_;
  };

  // Bounds of all users together, and by tenant of those whose files they are not; 0: none.
  void set_most_bytes(std::uint64_t all, const TenantBytes& of_tenants);

  // nullopt: it is more than he may hold. What he has open already he may open again.
  std::optional<Hold> open(const Open& open);
  // Opens that were refused by these bounds, or by others' shares.
  void refuse() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_.load(); }

 private:
  struct Held {
    std::uint32_t descriptors = 0;
    Open open;  // as it was counted
  };

  void close(const Open& open);

  mutable std::mutex mutex_;
  // Under mutex_.
  std::map<std::pair<InodeNumber, uid_t>, Held> held_;
  UserBytes all_;
  std::array<UserBytes, order::kGroups>
      others_;  // by tenant: of those whose files they are not
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace kvcachefs
