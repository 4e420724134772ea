#include "fs/budget/find_victim.h"

namespace kvcachefs {

FoundVictim find_victim(Core& core, const Candidate& candidate) {
  FoundVictim found;
  InodeNumber number = candidate.name;
  if (candidate.is_block) {
    const auto record = core.catalog.find_block(candidate.name);
    if (!record.ok()) return found;  // damaged, or the database fails: said by it
    if (!*record) return found;      // its removal is noted, and not told yet
    number = (*record)->inode;
    found.hash = (*record)->hash;
  }
  const Result<InodePtr> inode = core.table.get(number);
  // Of a file that is no block: it has gone, or has got a block's name since.
  if (!candidate.is_block && ((!inode.ok() && inode.error().code == ESTALE) ||
                              (inode.ok() && core.knowledge.is_block(number)))) {
    core.budget.files().forget(number);
    return found;
  }
  if (inode.ok()) found.inode = *inode;
  return found;
}

}  // namespace kvcachefs
