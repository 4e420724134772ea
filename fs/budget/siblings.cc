#include "fs/budget/siblings.h"

#include <algorithm>
#include <list>

#include "fs/known/find_blocks.h"

namespace kvcachefs {
namespace {

// Ranks times groups times parts; of more, what is beyond goes by itself.
constexpr std::size_t kMost = 256;

bool is_sibling(const Recognized& a, const Recognized& b) noexcept {
  return a.runtime == b.runtime && a.model == b.model && a.world == b.world;
}

}  // namespace

Siblings siblings_of(Core& core, EvictionPolicy& policy, const Candidate& block,
                     const std::string& hash) {
  Siblings out;
  // Most blocks are one file: that is all there is to read then.
  const auto rows = core.catalog.list_prefix(hash, std::nullopt, 2);
  if (!rows.ok() || rows->size() < 2) return out;
  const auto found = find_blocks(core.catalog, hash, kMost);
  if (!found.ok()) return out;
  const auto own = std::find_if(found->begin(), found->end(), [&](const FoundBlock& one) {
    return one.number == block.name;
  });
  if (own == found->end()) return out;
  for (const FoundBlock& one : *found) {
    if (one.number == block.name || !is_sibling(one.file, own->file)) continue;
    const auto key = policy.key_of(one.number);
    if (!key) continue;
    out.newest = std::max(out.newest, key->stamp);
    out.others.push_back({.name = one.number,
                          .is_block = true,
                          .tenant = core.knowledge.learner().group(one.number),
                          .key = *key});
  }
  return out;
}

}  // namespace kvcachefs
