#include "fs/explain/evict.h"

#include <dirent.h>

#include "backend/base/clock.h"
#include "fs/explain/explain.h"
#include "fs/known/queries.h"
#include "fs/life/evict_file.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kMostExamples = 16;

Result<void> check_writable(const Core& core) {
  if (core.options.read_only) return fail(EROFS, "mounted read-only");
  return {};
}

// Drops the file, or counts it among those left. `place`: of its directory; null: it has no path.
Result<void> evict_file(Core& core, InodeNumber number, const Place* place,
                        std::string_view name, EvictPage& page) {
  const Result<InodePtr> inode = core.table.get(number);
  // Removed meanwhile, or dropped by another name of it.
  if (!inode.ok() && inode.error().code == ESTALE) return {};
  if (!inode.ok()) return inode.error();
  std::uint64_t size = 0;
  {
    const std::lock_guard lock((*inode)->mutex);
    size = (*inode)->record.stamp.size;
  }
  const Result<Eviction> eviction = evict_file(core, *inode, DropReason::kAsked);
  if (!eviction.ok() && eviction.error().code == ESTALE) return {};
  if (!eviction.ok()) return eviction.error();
  if (eviction->obstacle == Obstacle::kUnwanted) return {};
  if (eviction->obstacle != Obstacle::kNone) {
    ++page.left[static_cast<std::size_t>(eviction->obstacle)];
    if (page.examples.size() < kMostExamples && place != nullptr)
      page.examples.push_back({.path = path_in(*place, name), .why = eviction->obstacle});
    return {};
  }
  ++page.files;
  page.bytes += size;
  return {};
}

}  // namespace

Result<EvictPage> evict_path(Core& core, std::string_view path) {
  TRY(check_writable(core));
  const auto name = TRY(resolve(core.catalog, path));
  if (!name) return fail(ENOENT, "no such file");
  EvictPage page;
  if (name->directory == 0) {
    page.directory = name->inode;
    return page;
  }
  const auto dentry = TRY(core.catalog.find_dentry(name->directory, name->name));
  if (!dentry) return fail(ENOENT, "no such file");
  if (dentry->type == DT_DIR) page.directory = dentry->inode;
  if (dentry->type != DT_REG) return page;
  const auto place = TRY(core.knowledge.places().of(name->directory));
  TRY(evict_file(core, dentry->inode, place.get(), name->name, page));
  return page;
}

Result<EvictPage> evict_directory(Core& core, InodeNumber directory, std::uint64_t after) {
  TRY(check_writable(core));
  const std::int64_t end = monotonic_now() + kPageNanos;
  EvictPage page;
  const Result<InodePtr> inode = core.table.get(directory);
  // Removed since the page before.
  if (!inode.ok() && inode.error().code == ESTALE) return page;
  if (!inode.ok()) return inode.error();
  if ((*inode)->type != S_IFDIR) return fail(ENOTDIR, "no directory");
  const auto place = TRY(core.knowledge.places().of(directory));
  const std::vector<DirEntry> rows =
      TRY(core.catalog.list_directory(directory, after, kPageRows));
  if (rows.size() == kPageRows) page.next = rows.back().cookie;
  for (const DirEntry& row : rows) {
    if (row.type == DT_DIR) page.directories.push_back(row.inode);
    if (row.type == DT_REG) TRY(evict_file(core, row.inode, place.get(), row.name, page));
    if (monotonic_now() >= end && row.cookie != rows.back().cookie) {
      page.next = row.cookie;
      break;
    }
  }
  return page;
}

}  // namespace kvcachefs
