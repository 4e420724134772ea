#include "fs/budget/find_victim.h"

namespace kvcachefs {

InodePtr find_victim(Core& core, const Candidate& candidate) {
  InodeNumber number = candidate.name;
  if (candidate.is_block) {
    const auto record = core.catalog.find_block(candidate.name);
    if (!record.ok()) return nullptr;  // damaged, or the database fails: said by it
    if (!*record) return nullptr;      // its removal is noted, and not told yet
    number = (*record)->inode;
  }
  const Result<InodePtr> inode = core.table.get(number);
  // Of a file that is no block: it has gone, or has got a block's name since.
  if (!candidate.is_block && ((!inode.ok() && inode.error().code == ESTALE) ||
                              (inode.ok() && core.knowledge.is_block(number)))) {
    core.budget.files().forget(number);
    return nullptr;
  }
  return inode.ok() ? *inode : nullptr;
}

}  // namespace kvcachefs
