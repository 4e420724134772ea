// What stands against dropping a file that somebody wants to be dropped.
#pragma once

#include <cstdint>
#include <string_view>

#include "fs/node/core.h"

namespace kvcachefs {

enum class Obstacle : std::uint8_t {
  kNone,
  kOpen,      // somebody has it open
  kUnsealed,  // it is being written, or its checksums are being made
  kKept,      // policy keep
  kPinned,    // policy pin
};
inline constexpr std::size_t kObstacles = 5;

// "none", "open", "unsealed", "kept", "pinned".
[[nodiscard]] std::string_view name_of(Obstacle obstacle) noexcept;

// Of a regular file, at this moment. Takes the inode's lock. Errors: as Knowledge::treatment().
Result<Obstacle> obstacle_of(Core& core, Inode& inode);
// The same of what was looked at before.
[[nodiscard]] Obstacle obstacle_of(const InodeRecord& record, std::uint32_t opens,
                                   FilePolicy policy) noexcept;

}  // namespace kvcachefs
