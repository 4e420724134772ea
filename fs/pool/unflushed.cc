#include "fs/pool/unflushed.h"

#include <sys/stat.h>

#include <functional>
#include <vector>

#include "fs/life/states.h"
#include "fs/node/closing.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kCountBatch = 1024;
// That are looked at, of each kind.
constexpr std::size_t kMostSeen = 65'536;

Result<void> count_file(Core& core, std::string_view top, InodeNumber number, bool is_sealed,
                        Unflushed& out) {
  const auto shared = TRY(shared_name_of(core.catalog, core.knowledge, number));
  if (!shared || !is_below(shared->path, top)) return {};
  const Result<InodePtr> inode = core.table.get(number);
  if (!inode.ok()) return {};
  const std::lock_guard lock((*inode)->mutex);
  if ((*inode)->type == S_IFDIR && (*inode)->record.nlink > 0) ++out.directories;
  if (!(*inode)->is_file()) return {};
  if ((*inode)->record.nlink == 0 || is_unsealed((*inode)->record.state) == is_sealed)
    return {};
  const WrittenBy by = written_by(**inode);
  if (by == WrittenBy::kNobody) ++out.files;
  if (by == WrittenBy::kClosing) ++out.closing;
  return {};
}

using List = std::function<Result<std::vector<InodeNumber>>(InodeNumber after)>;

// Of files that are sealed, or of those that are not: a list may have both.
Result<void> count_files(Core& core, std::string_view top, InodeNumber before, const List& list,
                         bool are_sealed, Unflushed& out) {
  InodeNumber after = 0;
  for (std::size_t seen = 0; seen < kMostSeen; seen += kCountBatch) {
    const std::vector<InodeNumber> numbers = TRY(list(after));
    for (const InodeNumber number : numbers) {
      if (number >= before) return {};
      TRY(count_file(core, top, number, are_sealed, out));
    }
    if (numbers.size() < kCountBatch) return {};
    after = numbers.back();
  }
  out.more = true;
  return {};
}

// What is listed by its path.
template <class List>
Result<void> count_paths(std::string_view top, const List& list, std::uint64_t& count,
                         bool& more) {
  std::string after;
  for (std::size_t seen = 0; seen < kMostSeen; seen += kCountBatch) {
    const auto batch = TRY(list(after));
    for (const auto& row : batch)
      if (is_below(row.first, top)) ++count;
    if (batch.size() < kCountBatch) return {};
    after = batch.back().first;
  }
  more = true;
  return {};
}

}  // namespace

Result<Unflushed> count_unflushed(Core& core, std::string_view path, InodeNumber before) {
  Unflushed out;
  // A file that is sealed meanwhile goes from the first list to the second.
  TRY(count_files(
      core, path, before,
      [&core](InodeNumber after) { return core.catalog.list_unsealed(after, kCountBatch); },
      false, out));
  TRY(count_files(
      core, path, before,
      [&core](InodeNumber after) { return core.catalog.list_to_publish(after, kCountBatch); },
      true, out));
  TRY(count_paths(
      path,
      [&core](const std::string& after) {
        return core.catalog.list_tombstones(after, kCountBatch);
      },
      out.removed, out.more));
  TRY(count_paths(
      path,
      [&core](const std::string& after) {
        return core.catalog.list_owner_changes(after, kCountBatch);
      },
      out.owners, out.more));
  return out;
}

}  // namespace kvcachefs
