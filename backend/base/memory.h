// This machine's memory (proc_meminfo(5)).
#pragma once

#include <cstdint>
#include <optional>

namespace kvcachefs {

// Bytes; nullopt: the kernel does not say. The second is what can be had without swapping: page cache that
// can go counts.
[[nodiscard]] std::optional<std::uint64_t> total_memory();
[[nodiscard]] std::optional<std::uint64_t> available_memory();

}  // namespace kvcachefs
