#include "fs/known/find_blocks.h"

#include <dirent.h>

#include "fs/known/block_number.h"
#include "fs/known/place.h"

namespace kvcachefs {
namespace {

// Fills in what a row of the index leads to; false: it does not lead there any more.
Result<bool> follow(Catalog& catalog, const PrefixName& row, FoundBlock& found) {
  const auto dentry = TRY(catalog.find_dentry(row.parent, row.name));
  if (!dentry || dentry->type != DT_REG) return false;
  const auto record = TRY(catalog.find_inode(dentry->inode));
  if (!record || record->state == DataState::kUnpublished) return false;
  const auto place = TRY(find_place(catalog, row.parent));
  if (place == nullptr) return false;
  found.path = path_in(*place, row.name);
  const auto file = finished_block(found.path, place->told);
  if (!file || file->prefix_hash != row.hash) return false;
  found.number = block_number(row.parent, row.name);
  found.inode = dentry->inode;
  found.directory = row.parent;
  found.name = row.name;
  found.file = *file;
  return true;
}

}  // namespace

Result<std::list<FoundBlock>> find_blocks(Catalog& catalog, std::string_view hash,
                                          std::size_t limit) {
  constexpr std::size_t kBatch = 256;
  std::list<FoundBlock> found;
  std::optional<PrefixName> after;
  while (true) {
    std::vector<PrefixName> rows = TRY(catalog.list_prefix(hash, after, kBatch));
    for (const PrefixName& row : rows) {
      if (found.size() == limit) return found;
      found.emplace_back();
      if (!TRY(follow(catalog, row, found.back()))) found.pop_back();
    }
    if (rows.size() < kBatch) return found;
    after = std::move(rows.back());
  }
}

bool is_same_series(const Recognized& a, const Recognized& b) noexcept {
  return a.runtime == b.runtime && a.model == b.model && a.world == b.world &&
         a.rank == b.rank && a.group == b.group && a.part == b.part;
}

}  // namespace kvcachefs
