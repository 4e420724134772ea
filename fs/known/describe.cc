#include "fs/known/describe.h"

#include <algorithm>

#include "fs/known/block_number.h"

namespace kvcachefs {
namespace {

// Most files have one name. One that many sessions link has more of them than are looked at here;
// the index of prefix hashes leads to it.
constexpr std::size_t kFirstLinks = 16;
constexpr std::size_t kNameBatch = 256;

bool is_number(std::uint64_t block, InodeNumber directory, std::string_view name) {
  return block_number(directory, name) == block;
}

}  // namespace

Result<std::shared_ptr<const Place>> Describer::place_of(InodeNumber directory) {
  const auto known = places_.find(directory);
  if (known != places_.end()) return known->second;
  auto place = TRY(find_place(catalog_, directory));
  places_.emplace(directory, place);
  return place;
}

Result<std::optional<ObjectInfo>> Describer::describe(InodeNumber directory,
                                                      std::string_view name, InodeNumber inode,
                                                      const BlockRecord* record) {
  const std::optional<ObjectInfo> nothing;
  const std::optional<InodeRecord> file = TRY(catalog_.find_inode(inode));
  if (!file || file->nlink == 0 || file->state == DataState::kUnpublished ||
      file->state == DataState::kNone)
    return nothing;
  const std::shared_ptr<const Place> place = TRY(place_of(directory));
  if (place == nullptr) return nothing;
  ObjectInfo info;
  info.path = path_in(*place, name);
  const std::optional<Recognized> known = finished_block(info.path, place->told);
  if (!known) return nothing;
  info.block = block_number(directory, name);
  info.inode = inode;
  info.runtime = name_of(known->runtime);
  info.model = known->model;
  info.hash = known->prefix_hash;
  info.part = known->part;
  info.world = known->world;
  info.rank = known->rank;
  info.group = known->group;
  info.size = file->stamp.size;
  info.created = file->btime;
  const UnixNanos used = TRY(shown(time_of_stamp(TRY(order_.last_use(info.block, record)))));
  // The order's clock is coarser than the file's.
  if (used > 0) info.last_use = std::max(used, info.created);
  return std::optional{std::move(info)};
}

// A time of the mount's own, as the wall clock has it (fs/known/own_time.h).
Result<UnixNanos> Describer::shown(std::int64_t own) {
  if (!ahead_) {
    const std::optional<ClockRecord> clock = TRY(catalog_.clock());
    ahead_ = clock && !clock->spans.empty() ? clock->spans.back().ahead : 0;
  }
  return own > 0 ? own + *ahead_ : own;
}

Result<std::optional<ObjectInfo>> Describer::by_block(std::uint64_t block) {
  const std::optional<BlockRecord> record = TRY(catalog_.find_block(block));
  if (!record) return std::optional<ObjectInfo>{};
  return by_block(block, *record);
}

Result<std::optional<ObjectInfo>> Describer::by_block(std::uint64_t block,
                                                      const BlockRecord& record) {
  for (const auto& [directory, name] : TRY(catalog_.list_links(record.inode, kFirstLinks))) {
    if (is_number(block, directory, name))
      return describe(directory, name, record.inode, &record);
  }
  std::optional<PrefixName> after;
  while (!record.hash.empty()) {
    std::vector<PrefixName> rows = TRY(catalog_.list_prefix(record.hash, after, kNameBatch));
    for (const PrefixName& row : rows) {
      if (is_number(block, row.parent, row.name))
        return describe(row.parent, row.name, record.inode, &record);
    }
    if (rows.size() < kNameBatch) break;
    after = std::move(rows.back());
  }
  return std::optional<ObjectInfo>{};
}

Result<std::optional<ObjectInfo>> Describer::by_name(InodeNumber directory,
                                                     const std::string& name) {
  const std::optional<DentryRecord> dentry = TRY(catalog_.find_dentry(directory, name));
  if (!dentry) return std::optional<ObjectInfo>{};
  return describe(directory, name, dentry->inode, nullptr);
}

Result<std::optional<ObjectInfo>> Describer::by_inode(InodeNumber inode) {
  for (const auto& [directory, name] : TRY(catalog_.list_links(inode, kNameBatch))) {
    std::optional<ObjectInfo> info = TRY(describe(directory, name, inode, nullptr));
    if (info) return info;
  }
  return std::optional<ObjectInfo>{};
}

}  // namespace kvcachefs
