#include "fs/budget/victim_walk.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kBatch = 64;

}  // namespace

template <typename Fetch>
const order::Victim* VictimWalk::peek(Side& side, Fetch fetch) {
  if (side.at == side.batch.size()) {
    if (side.ended) return nullptr;
    side.batch = fetch(kBatch, side.last);
    side.at = 0;
    side.ended = side.batch.size() < kBatch;
    if (side.batch.empty()) return nullptr;
  }
  return &side.batch[side.at];
}

std::optional<Candidate> VictimWalk::next(TenantMask of) {
  Side* lowest = nullptr;
  std::optional<Candidate> found;
  const auto consider = [&](Side& side, const order::Victim* victim, bool is_block,
                            TenantSlot tenant) {
    if (victim == nullptr || (found && found->key <= victim->key)) return;
    lowest = &side;
    found = {.name = victim->name, .is_block = is_block, .tenant = tenant, .key = victim->key};
  };
  for (std::size_t slot = 0; slot < order::kGroups; ++slot) {
    const auto tenant = static_cast<TenantSlot>(slot);
    if ((of & mask_of(tenant)) == 0) continue;
    Side& blocks = of_blocks_[slot];
    consider(blocks,
             peek(blocks,
                  [&](std::size_t limit, const std::optional<order::Victim>& after) {
                    return blocks_.victims(tenant, limit, after);
                  }),
             true, tenant);
    Side& files = of_files_[slot];
    consider(files,
             peek(files,
                  [&](std::size_t limit, const std::optional<order::Victim>& after) {
                    return files_.victims(limit, after, tenant);
                  }),
             false, tenant);
  }
  if (lowest == nullptr) return std::nullopt;
  lowest->last = lowest->batch[lowest->at];
  ++lowest->at;
  return found;
}

bool VictimWalk::is_current(const Candidate& candidate) {
  const auto key =
      candidate.is_block ? blocks_.key_of(candidate.name) : files_.eviction_key(candidate.name);
  return key == candidate.key;
}

void VictimWalk::restart() {
  of_blocks_ = {};
  of_files_ = {};
}

void VictimWalk::refresh() {
  for (auto* const sides : {&of_blocks_, &of_files_}) {
    for (Side& side : *sides) {
      side.batch.clear();
      side.at = 0;
      side.ended = false;
    }
  }
}

}  // namespace kvcachefs
