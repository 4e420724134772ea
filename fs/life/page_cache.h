// What the kernel has of a file in its page cache.
#pragma once

#include <cstdint>
#include <optional>

namespace kvcachefs {

// Whether all pages of `size` bytes from `offset` on are in the page cache, or on their way into
// it. nullopt: the kernel does not say (cachestat(2) is there from Linux 6.5 on).
[[nodiscard]] std::optional<bool> is_cached(int fd, std::uint64_t size,
                                            std::uint64_t offset = 0) noexcept;

}  // namespace kvcachefs
