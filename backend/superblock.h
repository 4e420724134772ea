// The superblock of a device directory: a short text file that says what the directory is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/base/random.h"
#include "backend/base/result.h"

namespace kvcachefs {

inline constexpr std::uint32_t kDeviceFormat = 1;
inline constexpr const char* kSuperblockName = "kvcachefs-device";
inline constexpr std::size_t kSuperblockLimit = 4096;

struct Superblock {
  Uuid device{};
  Uuid catalog{};
};

[[nodiscard]] std::string encode_superblock(const Superblock& superblock);
// Errors: EBADMSG (not a superblock), EPROTONOSUPPORT (of another format version).
Result<Superblock> decode_superblock(std::string_view text);

}  // namespace kvcachefs
