#include "fs/known/find_blocks.h"

#include <dirent.h>

#include <climits>

#include "fs/known/block_number.h"

namespace kvcachefs {
namespace {

// Fills in what a row of the index leads to; false: it does not lead there any more.
Result<bool> follow(Catalog& catalog, PlaceWalk& places, const PrefixName& row,
                    FoundBlock& found) {
  const auto dentry = TRY(catalog.find_dentry(row.parent, row.name));
  if (!dentry || dentry->type != DT_REG) return false;
  const auto record = TRY(catalog.find_inode(dentry->inode));
  if (!record || record->state == DataState::kUnpublished) return false;
  const auto place = TRY(places.find(row.parent));
  if (place == nullptr) return false;
  found.path = path_in(*place, row.name);
  const auto file = finished_block(found.path, place->told);
  if (!file || file->prefix_hash != row.hash) return false;
  found.number = block_number(row.parent, row.name);
  found.inode = dentry->inode;
  found.directory = row.parent;
  found.uid = record->uid;
  found.name = row.name;
  found.file = *file;
  return true;
}

}  // namespace

Result<std::list<FoundBlock>> find_blocks(Catalog& catalog, std::string_view hash,
                                          std::size_t limit, const MayEnter& may_enter,
                                          std::size_t most_steps) {
  constexpr std::size_t kBatch = 256;
  // Behind all names of a directory.
  const std::string kLastName(NAME_MAX + 1, '\xff');
  std::list<FoundBlock> found;
  PlaceWalk places(catalog, most_steps);
  std::optional<PrefixName> after;
  // One is enough to pass over a directory.
  std::size_t batch = limit == 1 ? 1 : kBatch;
  for (std::size_t looked = 0; looked < kMostLookedAt;) {
    std::vector<PrefixName> rows = TRY(catalog.list_prefix(hash, after, batch));
    bool is_passed_over = false;
    for (PrefixName& row : rows) {
      if (found.size() == limit || places.is_spent()) return found;
      ++looked;
      if (may_enter && !TRY(may_enter(row.parent))) {
        after = std::move(row);
        after->name = kLastName;
        is_passed_over = true;
        break;
      }
      found.emplace_back();
      if (!TRY(follow(catalog, places, row, found.back()))) found.pop_back();
    }
    if (is_passed_over) continue;
    if (rows.size() < batch) return found;
    after = std::move(rows.back());
    batch = kBatch;
  }
  return found;
}

bool is_same_series(const Recognized& a, const Recognized& b) noexcept {
  return a.runtime == b.runtime && a.model == b.model && a.world == b.world &&
         a.rank == b.rank && a.group == b.group && a.part == b.part;
}

}  // namespace kvcachefs
