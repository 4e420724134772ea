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

std::optional<Candidate> VictimWalk::next() {
  const order::Victim* const block =
      peek(of_blocks_, [this](std::size_t limit, const std::optional<order::Victim>& after) {
        return blocks_.victims(limit, after);
      });
  const order::Victim* const file =
      peek(of_files_, [this](std::size_t limit, const std::optional<order::Victim>& after) {
        return files_.victims(limit, after);
      });
  if (block == nullptr && file == nullptr) return std::nullopt;
  if (file == nullptr || (block != nullptr && block->key <= file->key)) {
    of_blocks_.last = *block;
    ++of_blocks_.at;
    return Candidate{
        .name = of_blocks_.last->name, .is_block = true, .key = of_blocks_.last->key};
  }
  of_files_.last = *file;
  ++of_files_.at;
  return Candidate{.name = of_files_.last->name, .is_block = false, .key = of_files_.last->key};
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
  for (Side* const side : {&of_blocks_, &of_files_}) {
    side->batch.clear();
    side->at = 0;
    side->ended = false;
  }
}

}  // namespace kvcachefs
