// Paths and names of a pool (pool_session.h), which come from users and from servers: neither is trusted.
#pragma once

#include <string_view>
#include <utility>

#include "backend/base/result.h"

namespace kvcachefs {

inline constexpr std::size_t kLongestPoolName = 255;  // bytes
inline constexpr std::size_t kLongestPoolPath = 4095;

// One component, and neither "." nor "..".
[[nodiscard]] bool is_pool_name(std::string_view name) noexcept;
// Errors: EINVAL. The root, "", is a path.
[[nodiscard]] Result<void> check_pool_path(std::string_view path) noexcept;
// Its directory and its name: "a/b/c" is ("a/b", "c"), "a" is ("", "a"). The path is checked and not the root.
[[nodiscard]] std::pair<std::string_view, std::string_view> split_pool_path(
    std::string_view path) noexcept;

}  // namespace kvcachefs
