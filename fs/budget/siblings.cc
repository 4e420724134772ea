#include "fs/budget/siblings.h"

#include <algorithm>
#include <list>
#include <string_view>

#include "fs/known/find_blocks.h"

namespace kvcachefs {
namespace {

// Ranks times groups times parts; of more, what is beyond goes by itself.
constexpr std::size_t kMost = 256;
// Up from them, of a few microseconds each; more are not looked at.
constexpr std::size_t kMostSteps = 4096;

// What is before the model: two that run the same one have nothing else in common. Mooncake's directories there
// are made of the whole key, which tells the ranks apart.
std::string_view root_of(const FoundBlock& block) noexcept {
  const std::string_view path = block.path;
  const std::string_view model = block.file.model;
  if (model.empty() || block.file.runtime == Runtime::kMooncakeFile) return {};
  return path.substr(0, static_cast<std::size_t>(model.data() - path.data()));
}

bool is_sibling(const FoundBlock& a, const FoundBlock& b) noexcept {
  return a.file.runtime == b.file.runtime && a.file.model == b.file.model &&
         a.file.world == b.file.world && a.file.config == b.file.config &&
         root_of(a) == root_of(b);
}

}  // namespace

Siblings siblings_of(Core& core, EvictionPolicy& policy, const Candidate& block,
                     const std::string& hash) {
  Siblings out;
  // Most blocks are one file: that is all there is to read then.
  const auto rows = core.catalog.list_prefix(hash, std::nullopt, 2);
  if (!rows.ok() || rows->size() < 2) return out;
  const auto found = find_blocks(core.catalog, hash, kMost, {}, kMostSteps);
  if (!found.ok()) return out;
  const auto own = std::find_if(found->begin(), found->end(), [&](const FoundBlock& one) {
    return one.number == block.name;
  });
  if (own == found->end()) return out;
  for (const FoundBlock& one : *found) {
    if (one.number == block.name || !is_sibling(one, *own)) continue;
    const auto key = policy.key_of(one.number);
    if (!key) continue;
    const TenantSlot tenant = core.knowledge.learner().group(one.number);
    if (tenant != block.tenant) continue;
    out.newest = std::max(out.newest, key->stamp);
    out.others.push_back({.name = one.number, .is_block = true, .tenant = tenant, .key = *key});
  }
  return out;
}

}  // namespace kvcachefs
