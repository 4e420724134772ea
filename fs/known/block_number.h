// The number under which a block of KV cache goes in fs/order and in the catalog's table of blocks:
// a hash of the directory's inode number and the name. It stays when a directory above is renamed,
// and a name that comes again has it again.
//
// The table of blocks is on the disk: another hash needs a new version of the database.
#pragma once

#include <cstdint>
#include <string_view>

#include "metadata/record.h"

namespace kvcachefs {

// Never 0. Two names of 10 million have the same number once in 400,000 such filesystems; then
// they share a place in the order of eviction.
[[nodiscard]] constexpr std::uint64_t block_number(InodeNumber directory,
                                                   std::string_view name) noexcept {
  // Multiply and fold, eight bytes a step: names of blocks are mostly hashes already.
  constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15;
  constexpr std::uint64_t kSecond = 0xd6e8feb86659fd93;
  const auto mix = [](std::uint64_t value) {
    value = (value ^ value >> 32) * kSecond;
    value = (value ^ value >> 29) * kFirst;
    return value ^ value >> 32;
  };
  std::uint64_t number = mix(directory + kFirst) + name.size();
  while (!name.empty()) {
    const std::size_t step = name.size() < 8 ? name.size() : 8;
    std::uint64_t word = 0;
    for (std::size_t at = 0; at < step; ++at)
      word |= std::uint64_t{static_cast<unsigned char>(name[at])} << 8 * at;
    number = mix(number ^ word) + kFirst;
    name.remove_prefix(step);
  }
  return number == 0 ? 1 : number;
}

}  // namespace kvcachefs
