#include "tests/sim/true_chain_policy.h"

namespace kvcachefs::sim {

using What = order::Note::What;

TrueChainPolicy::TrueChainPolicy(const Trace& trace)
    : trace_(trace), places_(trace.parents.size()), stored_(trace.parents.size()) {
  for (const Request& request : trace.requests) {
    for (std::size_t i = 0; i < request.blocks.size(); ++i) {
      const BlockId block = request.blocks[i];
      places_[block] = {0, static_cast<std::uint32_t>(i), block};
    }
  }
}

void TrueChainPolicy::observe(const order::Note& note) {
  const auto block = static_cast<BlockId>(note.name - 1);
  if (note.what == What::kRemoved) {
    order_.erase(places_[block]);
    stored_[block] = false;
    return;
  }
  if (note.what != What::kHit && note.what != What::kLoaded && note.what != What::kStored)
    return;
  if (!stored_[block]) {
    stored_[block] = true;
    order_.insert(places_[block]);
  }
  use(block, note.when_ns);
}

// What was used at a time, and all before it with it, ends the way up.
void TrueChainPolicy::use(BlockId block, std::int64_t now_ns) {
  while (places_[block].used_ns != now_ns) {
    if (stored_[block]) order_.erase(places_[block]);
    places_[block].used_ns = now_ns;
    if (stored_[block]) order_.insert(places_[block]);
    block = trace_.parents[block];
  }
}

std::vector<order::Victim> TrueChainPolicy::victims(order::Group, std::size_t limit,
                                                    const std::optional<order::Victim>&) {
  std::vector<order::Victim> victims;
  for (auto place = order_.begin(); place != order_.end() && victims.size() < limit; ++place)
    victims.push_back({std::uint64_t{place->block} + 1, {}});
  return victims;
}

}  // namespace kvcachefs::sim
