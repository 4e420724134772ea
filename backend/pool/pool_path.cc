#include "backend/pool/pool_path.h"

#include <cerrno>

namespace kvcachefs {

bool is_pool_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kLongestPoolName && name != "." && name != ".." &&
         name.find('/') == name.npos && name.find('\0') == name.npos;
}

Result<void> check_pool_path(std::string_view path) noexcept {
  if (path.empty()) return {};
  if (path.size() > kLongestPoolPath) return fail(EINVAL, "pool: a path is too long");
  while (true) {
    const std::size_t end = path.find('/');
    if (!is_pool_name(path.substr(0, end))) return fail(EINVAL, "pool: a path is none");
    if (end == path.npos) return {};
    path.remove_prefix(end + 1);
  }
}

std::pair<std::string_view, std::string_view> split_pool_path(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  if (slash == path.npos) return {{}, path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace kvcachefs
