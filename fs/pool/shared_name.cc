#include "fs/pool/shared_name.h"

#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"

namespace kvcachefs {
namespace {

// Lists of links to files that are shared themselves (fs/names/native_map.h).
constexpr std::string_view kSessions = "session";

}  // namespace

bool is_below(std::string_view path, std::string_view top) noexcept {
  return top.empty() ||
         (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/'));
}

std::optional<SharedName> shared_name(Knowledge& knowledge, InodeNumber directory,
                                      std::string_view name) {
  const auto place = knowledge.places().of(directory);
  if (!place.ok() || *place == nullptr) return std::nullopt;
  SharedName shared{.path = path_in(**place, name)};
  if (shared.path.find(".tmp") != std::string::npos) return std::nullopt;
  if (is_below(shared.path, kPoolService) || is_below(shared.path, kSessions) ||
      !check_pool_path(shared.path).ok())
    return std::nullopt;
  const NameLook seen = knowledge.look(directory, name);
  if (seen.block && seen.block->temporary) return std::nullopt;
  shared.path_hash = pool_path_hash(shared.path);
  shared.is_block = seen.block.has_value();
  return shared;
}

Result<std::optional<SharedName>> shared_name_of(Catalog& catalog, Knowledge& knowledge,
                                                 InodeNumber inode) {
  const auto links = TRY(catalog.list_links(inode, 1));
  if (links.empty()) return std::optional<SharedName>{};
  return shared_name(knowledge, links.front().first, links.front().second);
}

}  // namespace kvcachefs
