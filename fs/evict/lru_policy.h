// The least recently used name goes first, whatever prefix it belongs to: for comparison. A use is a
// hit, a load or the end of a store.
//
// A prefix is looked up from its beginning, so that is what goes first, and the rest is of no use
// then. At most 64 bytes a name.
#pragma once

#include <mutex>

#include "fs/evict/policy.h"
#include "fs/order/group_orders.h"
#include "fs/order/name_table.h"

namespace kvcachefs {

class LruPolicy : public EvictionPolicy {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "lru"; }
  void observe(const order::Note& note) override;
  [[nodiscard]] std::vector<order::Victim> victims(
      order::Group group, std::size_t limit,
      const std::optional<order::Victim>& after) override;
  void raise(std::uint64_t name, std::uint64_t stamp) override;
  [[nodiscard]] std::optional<order::EvictionKey> key_of(std::uint64_t name) override;

 private:
  void use(std::uint64_t name);
  void set_group(std::uint64_t name, order::Group group);
  void remove(std::uint64_t name);

  std::mutex mutex_;
  order::NameTable names_;             // under mutex_
  order::GroupOrders orders_{names_};  // under mutex_
  order::Stamp uses_ = 0;  // under mutex_: the stamp of a name is the number of its last use
};

}  // namespace kvcachefs
