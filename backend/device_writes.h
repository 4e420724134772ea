// How much was written to the block device below a path, as the kernel counts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvcachefs {

// Bytes, by anybody, since the device is there. nullopt: none stands below (tmpfs, an overlay, several
// devices), or /sys does not say.
[[nodiscard]] std::optional<std::uint64_t> written_below(const std::string& path);

}  // namespace kvcachefs
