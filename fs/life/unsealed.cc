#include "fs/life/unsealed.h"

#include <string>
#include <vector>

#include "fs/known/place.h"
#include "fs/life/states.h"
#include "fs/node/closing.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kCountBatch = 1024;
constexpr std::size_t kMostSeen = 65'536;
// A file with more links is taken for one below `top`: a flush then waits for more than it must.
constexpr std::size_t kMostLinksLooked = 64;

// A file whose directory has no path any more is below nothing but the root.
Result<bool> has_name_below(Core& core, std::string_view top, InodeNumber number) {
  if (top.empty()) return true;
  const auto links = TRY(core.catalog.list_links(number, kMostLinksLooked));
  if (links.size() == kMostLinksLooked) return true;
  for (const auto& [directory, name] : links) {
    const auto place = core.knowledge.places().of(directory);
    if (!place.ok() && place.error().code != ESTALE) return place.error();
    if (place.ok() && *place != nullptr && is_below(path_in(**place, name), top)) return true;
  }
  return false;
}

}  // namespace

Result<Unsealed> count_unsealed(Core& core, std::string_view top, const FlushPoint& since) {
  Unsealed out;
  InodeNumber after = 0;
  for (std::size_t seen = 0; seen < kMostSeen; seen += kCountBatch) {
    const std::vector<InodeNumber> numbers =
        TRY(core.catalog.list_unsealed(after, kCountBatch));
    for (const InodeNumber number : numbers) {
      if (number >= since.before) return out;
      const Result<InodePtr> inode = core.table.get(number);
      if (!inode.ok() && inode.error().code != ESTALE) return inode.error();
      if (!inode.ok() || !TRY(has_name_below(core, top, number))) continue;
      // Whoever asks goes on to answer others, and will be asked again.
      const std::unique_lock lock((*inode)->mutex, std::try_to_lock);
      if (!lock) {
        ++out.files;
        continue;
      }
      if ((*inode)->record.nlink == 0 || !is_unsealed((*inode)->record.state)) continue;
      const bool is_older = (*inode)->write_opens <= since.opened;
      switch (is_older ? written_by(**inode) : WrittenBy::kSomebody) {
        case WrittenBy::kNobody:
          ++out.files;
          break;
        case WrittenBy::kClosing:
          ++out.closing;
          break;
        case WrittenBy::kSomebody:
          ++out.open;
          break;
      }
    }
    if (numbers.size() < kCountBatch) return out;
    after = numbers.back();
  }
  out.more = true;
  return out;
}

}  // namespace kvcachefs
