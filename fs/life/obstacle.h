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
  kLeased,    // somebody has just found it
  kUnwanted,  // it is no file, is gone already, or was not meant
  kOwned,     // policy process, and who wrote it lives
  kQueued,    // the pool has an older file of its name, which would be found in its place
};
inline constexpr std::size_t kObstacles = 9;

// "none", "open", "unsealed", "kept", "pinned", "leased", "unwanted", "owned", "queued".
[[nodiscard]] std::string_view name_of(Obstacle obstacle) noexcept;

// What its policy alone says.
[[nodiscard]] Obstacle obstacle_by_policy(const Treatment& treatment) noexcept;

// But for a lease: of a file that was looked at before. `before_seal`: what is published may go as well, all its
// bytes are there.
[[nodiscard]] Obstacle obstacle_of(const InodeRecord& record, std::uint32_t opens,
                                   const Treatment& treatment,
                                   bool before_seal = false) noexcept;

}  // namespace kvcachefs
