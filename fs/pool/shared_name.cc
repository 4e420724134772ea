#include "fs/pool/shared_name.h"

#include <utility>

#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"
#include "fs/layout/layout.h"

namespace kvcachefs {
namespace {

// Lists of links to files that are shared themselves (fs/names/native_map.h).
constexpr std::string_view kSessions = "session";
// Looked at for the one that is shared: of a file with more the others stay on this node.
constexpr std::size_t kMostSharedLinks = 64;

}  // namespace

std::optional<SharedName> shared_name(Knowledge& knowledge, InodeNumber directory,
                                      std::string_view name) {
  const auto place = knowledge.places().of(directory);
  if (!place.ok() || *place == nullptr) return std::nullopt;
  SharedName shared{.path = path_in(**place, name)};
  if (has_temporary_name(shared.path)) return std::nullopt;
  if (is_below(shared.path, kPoolService) || is_below(shared.path, kSessions) ||
      !check_pool_path(shared.path).ok())
    return std::nullopt;
  const NameLook seen = knowledge.look(directory, name);
  if (seen.block && seen.block->temporary) return std::nullopt;
  shared.path_hash = pool_path_hash(shared.path);
  shared.is_block = seen.block.has_value();
  return shared;
}

Result<std::optional<SharedLink>> shared_link_of(Catalog& catalog, Knowledge& knowledge,
                                                 InodeNumber inode) {
  const auto links = TRY(catalog.list_links(inode, kMostSharedLinks));
  std::optional<PoolCopy> copy;
  if (links.size() > 1) copy = TRY(catalog.find_pool_copy(inode));
  std::optional<SharedLink> first;
  for (const auto& [directory, name] : links) {
    std::optional<SharedName> shared = shared_name(knowledge, directory, name);
    if (!shared) continue;
    const bool is_published = copy && shared->path_hash == copy->path_hash;
    SharedLink link{.directory = directory, .name = name, .shared = std::move(*shared)};
    if (!copy || is_published) return std::optional(std::move(link));
    if (!first) first = std::move(link);
  }
  return first;
}

Result<std::optional<SharedName>> shared_name_of(Catalog& catalog, Knowledge& knowledge,
                                                 InodeNumber inode) {
  std::optional<SharedLink> link = TRY(shared_link_of(catalog, knowledge, inode));
  if (!link) return std::optional<SharedName>{};
  return std::optional(std::move(link->shared));
}

}  // namespace kvcachefs
