// The default: the least recently used prefix goes first, from its end. The order is the learner's
// (fs/order), which knows it from the calls of runtimes; who tells the learner of calls tells it
// before the policy.
#pragma once

#include "fs/evict/policy.h"

namespace kvcachefs {

class ChainPolicy : public EvictionPolicy {
 public:
  // The learner must outlive the policy.
  explicit ChainPolicy(order::Learner& learner) : learner_(learner) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "chain"; }
  void observe(const order::Note&) override {}
  [[nodiscard]] std::vector<order::Victim> victims(
      order::Group group, std::size_t limit,
      const std::optional<order::Victim>& after) override {
    return learner_.victims(limit, after, group);
  }
  void raise(std::uint64_t name, std::uint64_t stamp) override { learner_.raise(name, stamp); }
  [[nodiscard]] std::optional<order::EvictionKey> key_of(std::uint64_t name) override {
    return learner_.eviction_key(name);
  }

 private:
  order::Learner& learner_;
};

}  // namespace kvcachefs
