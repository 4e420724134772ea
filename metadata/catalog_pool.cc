// What the catalog lists of a pool: copies there, and what is still to be done.
#include "metadata/catalog.h"
#include "metadata/format.h"
#include "metadata/keys.h"

namespace kvcachefs {

Result<std::vector<InodeNumber>> Catalog::list_by_fileid(std::uint64_t fileid,
                                                         std::size_t limit) {
  std::vector<InodeNumber> found;
  if (limit == 0) return found;
  const std::string rows = keys::lettered(keys::kCopyByFileid, fileid);
  TRY(store_->scan(Table::kPoolCopies, rows, rows, [&](std::string_view key, std::string_view) {
    if (const auto number = keys::to_inode_by_fileid(key)) found.push_back(*number);
    return found.size() < limit;
  }));
  return found;
}

// Rows with a letter and a number in their keys, those with numbers greater than `after`.
Result<void> Catalog::scan_lettered(
    Table table, char kind, std::uint64_t after, std::size_t limit,
    const std::function<void(std::uint64_t number, std::string_view value)>& visit) {
  if (after == UINT64_MAX || limit == 0) return {};
  return store_->scan(table, std::string(1, kind), keys::lettered(kind, after + 1),
                      [&](std::string_view key, std::string_view value) {
                        if (const auto number = keys::to_lettered(key)) visit(*number, value);
                        return --limit > 0;
                      });
}

Result<std::vector<QueuedFile>> Catalog::list_queued(InodeNumber after, std::size_t limit) {
  std::vector<QueuedFile> found;
  TRY(scan_lettered(Table::kPoolQueue, keys::kToPublish, after, limit,
                    [&](std::uint64_t number, std::string_view size) {
                      found.push_back({number, keys::to_number(size).value_or(0)});
                    }));
  return found;
}

Result<std::vector<InodeNumber>> Catalog::list_to_publish(InodeNumber after,
                                                          std::size_t limit) {
  std::vector<InodeNumber> numbers;
  for (const QueuedFile& file : TRY(list_queued(after, limit))) numbers.push_back(file.number);
  return numbers;
}

Result<std::vector<InodeNumber>> Catalog::list_pool_copies(InodeNumber after,
                                                           std::size_t limit) {
  std::vector<InodeNumber> found;
  TRY(scan_lettered(Table::kPoolCopies, keys::kCopyOfInode, after, limit,
                    [&](std::uint64_t number, std::string_view) { found.push_back(number); }));
  return found;
}

Result<bool> Catalog::is_to_publish(InodeNumber number) {
  return TRY(store_->get(Table::kPoolQueue, keys::lettered(keys::kToPublish, number)))
      .has_value();
}

namespace {

// Rows with a letter and a path in their keys, those with paths after `after`.
template <class Record>
Result<std::vector<std::pair<std::string, Record>>> list_paths(
    Store& store, char kind, std::string_view after, std::size_t limit,
    Result<Record> (*decode)(std::string_view)) {
  std::vector<std::pair<std::string, Record>> found;
  if (limit == 0) return found;
  std::string from = keys::lettered_path(kind, after);
  if (!after.empty()) from += '\0';
  Error damaged{0, ""};
  TRY(store.scan(Table::kPoolQueue, std::string(1, kind), from,
                 [&](std::string_view key, std::string_view value) {
                   Result<Record> record = decode(value);
                   if (!record.ok()) {
                     damaged = record.error();
                     return false;
                   }
                   found.emplace_back(key.substr(1), *record);
                   return found.size() < limit;
                 }));
  if (damaged.code != 0) return damaged;
  return found;
}

}  // namespace

Result<std::vector<std::pair<std::string, Tombstone>>> Catalog::list_tombstones(
    std::string_view after, std::size_t limit) {
  return list_paths(*store_, keys::kTombstone, after, limit, decode_tombstone);
}

Result<std::vector<std::pair<std::string, OwnerChange>>> Catalog::list_owner_changes(
    std::string_view after, std::size_t limit) {
  return list_paths(*store_, keys::kOwnerChange, after, limit, decode_owner_change);
}

}  // namespace kvcachefs
