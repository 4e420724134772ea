// The order that eviction would have if it knew every chain: a use of a block is one of all blocks
// before it, and of blocks used last together the deepest goes first. For comparison.
#pragma once

#include <compare>
#include <set>
#include <vector>

#include "fs/evict/policy.h"
#include "tests/sim/trace.h"

namespace kvcachefs::sim {

// Not thread safe.
class TrueChainPolicy : public EvictionPolicy {
 public:
  explicit TrueChainPolicy(const Trace& trace);

  [[nodiscard]] std::string_view name() const noexcept override { return "true"; }
  void observe(const order::Note& note) override;
  [[nodiscard]] std::vector<order::Victim> victims(
      order::Group group, std::size_t limit,
      const std::optional<order::Victim>& after) override;
  void raise(std::uint64_t, std::uint64_t) override {}
  [[nodiscard]] std::optional<order::EvictionKey> key_of(std::uint64_t name) override {
    if (!stored_[name - 1]) return std::nullopt;
    return order::EvictionKey{};
  }

 private:
  struct Place {
    std::int64_t used_ns = 0;
    std::uint32_t depth = 0;
    BlockId block = 0;

    friend std::strong_ordering operator<=>(const Place& a, const Place& b) noexcept {
      if (a.used_ns != b.used_ns) return a.used_ns <=> b.used_ns;
      if (a.depth != b.depth) return b.depth <=> a.depth;
      return a.block <=> b.block;
    }
  };
  void use(BlockId block, std::int64_t now_ns);

  const Trace& trace_;
  std::vector<Place> places_;
  std::vector<bool> stored_;
  std::set<Place> order_;  // of what is stored
};

}  // namespace kvcachefs::sim
