// Every row has a key and a value that read, and the database will not give a number twice.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "fs/check/check.h"
#include "metadata/keys.h"

namespace kvcachefs {
namespace {

std::string hex(std::string_view key) {
  std::string text;
  for (const char c : key) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace

Result<void> Check::check_rows() {
  std::uint64_t largest = kRootInode;
  // False: no database has given that many.
  const auto seen = [&largest](std::uint64_t id) {
    if (id == 0 || id > kMostNumbers) return false;
    largest = std::max(largest, id);
    return true;
  };
  // What is called "removed" here is made anew by a later pass where the other tables say
  // enough.
  const auto drop = [this](Table table, std::string_view key, const std::string& what) {
    problem(kRemove, what + " does not read");
    return erase(table, key);
  };

  TRY(each_row(Table::kInodes, [&](std::string_view key, std::string_view value) {
    const auto number = keys::to_number(key);
    if (number && seen(*number) && decode_inode(value).ok()) return Result<void>{};
    return drop(Table::kInodes, key,
                "record of inode " + (number ? std::to_string(*number) : hex(key)));
  }));
  TRY(each_row(Table::kObjects, [&](std::string_view key, std::string_view value) {
    const auto id = keys::to_number(key);
    if (id && seen(*id) && decode_object(value).ok()) return Result<void>{};
    return drop(Table::kObjects, key,
                "record of object " + (id ? std::to_string(*id) : hex(key)));
  }));
  TRY(each_row(Table::kListings, [&](std::string_view key, std::string_view value) {
    const auto listing = keys::to_listing(key);
    if (listing && seen(listing->cookie) && decode_listing(listing->cookie, value).ok())
      return Result<void>{};
    return drop(Table::kListings, key,
                listing ? fmt::format("listing entry {} of directory {}", listing->cookie,
                                      listing->parent)
                        : "listing entry " + hex(key));
  }));
  const auto check_keys = [&](Table table, const char* what, const auto& reads) {
    return each_row(table, [&](std::string_view key, std::string_view value) {
      if (reads(key, value)) return Result<void>{};
      return drop(table, key, fmt::format("{} {}", what, hex(key)));
    });
  };
  TRY(check_keys(Table::kDentries, "name", [](std::string_view key, std::string_view) {
    return keys::to_named(key).has_value();
  }));
  TRY(check_keys(Table::kBackReferences, "back reference",
                 [](std::string_view key, std::string_view) {
                   return keys::to_back_reference(key).has_value();
                 }));
  TRY(check_keys(Table::kXattrs, "xattr", [](std::string_view key, std::string_view) {
    return keys::to_named(key).has_value();
  }));
  TRY(check_keys(Table::kBlocks, "block", [](std::string_view key, std::string_view value) {
    return keys::to_number(key).has_value() && decode_block(value).ok();
  }));
  TRY(check_keys(Table::kPrefixes, "prefix", [](std::string_view key, std::string_view) {
    return keys::to_prefix(key).has_value();
  }));
  TRY(check_keys(
      Table::kUnsealed, "unsealed inode",
      [](std::string_view key, std::string_view) { return keys::to_number(key).has_value(); }));
  TRY(check_keys(Table::kOrphans, "orphan", [](std::string_view key, std::string_view value) {
    if (!keys::to_lettered(key)) return false;
    if (key.front() == keys::kOrphanInode) return decode_left_rows(value).ok();
    return key.front() == keys::kOrphanObject && value.size() == sizeof(std::uint32_t);
  }));
  TRY(check_keys(Table::kPoolCopies, "pool copy",
                 [](std::string_view key, std::string_view value) {
                   if (keys::to_inode_by_fileid(key)) return key.front() == keys::kCopyByFileid;
                   return keys::to_lettered(key) && key.front() == keys::kCopyOfInode &&
                          decode_pool_copy(value).ok();
                 }));
  TRY(check_keys(Table::kPoolQueue, "work for the pool",
                 [](std::string_view key, std::string_view value) {
                   if (key.empty()) return false;
                   if (key.front() == keys::kTombstone) return decode_tombstone(value).ok();
                   if (key.front() == keys::kOwnerChange)
                     return decode_owner_change(value).ok();
                   return key.front() == keys::kToPublish && keys::to_lettered(key).has_value();
                 }));
  return check_ids(largest);
}

Result<void> Check::check_ids(std::uint64_t largest) {
  const std::optional<std::string> value = TRY(setup_.store.get(Table::kMeta, keys::kIds));
  wire::Reader in(value ? std::string_view(*value) : std::string_view{});
  next_id_ = in.take<std::uint64_t>();
  if (next_id_ > largest) return {};
  problem(kCorrect, fmt::format("the record of given numbers ends at {}, but {} is in use",
                                next_id_, largest));
  next_id_ = largest;
  static_cast<void>(TRY(new_id()));
  return {};
}

// The catalog itself is never asked for one here: it has read the record of given numbers
// before it was checked.
Result<std::uint64_t> Check::new_id() {
  const std::uint64_t id = next_id_++;
  std::string next;
  wire::put_le(next, next_id_);
  WriteBatch batch;
  batch.put(Table::kMeta, std::string(keys::kIds), std::move(next));
  TRY(setup_.store.write(batch));
  return id;
}

Result<void> Check::check_root() {
  const std::optional<InodeRecord> root = TRY(setup_.catalog.find_inode(kRootInode));
  if (root && S_ISDIR(root->mode) && root->nlink >= 2) return {};
  problem(kMakeAnew, "the root directory has no record");
  InodeRecord record;
  record.mode = S_IFDIR | 0755;
  record.nlink = 2;  // counted anew later
  record.atime = record.mtime = record.ctime = record.btime = file_clock_now();
  Edit edit;
  edit.put_inode(kRootInode, record);
  edit.remove_orphan_inode(kRootInode);
  return commit(std::move(edit));
}

}  // namespace kvcachefs
