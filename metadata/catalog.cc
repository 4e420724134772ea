#include "metadata/catalog.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/base/log.h"
#include "backend/base/must_wait.h"
#include "backend/base/wire.h"
#include "metadata/find_record.h"
#include "metadata/format.h"
#include "metadata/keys.h"

namespace kvcachefs {
namespace {

// Ids are reserved on the disk in blocks, so that giving one costs no write. A crash wastes
// what is left of a block.
constexpr std::uint64_t kIdBlock = 65536;
constexpr std::uint64_t kFirstId = kRootInode + 1;

// A walk that took longer than this stepped over removed entries: the next one should not.
constexpr std::int64_t kSlowWalk = kNanosPerSecond / 2000;

constexpr std::uint8_t kListingVersion = 1;

std::string encode_listing(const DentryRecord& dentry, std::string_view name) {
  std::string value;
  value.reserve(10 + name.size());
  wire::put_le(value, kListingVersion);
  wire::put_le(value, dentry.type);
  wire::put_le(value, dentry.inode);
  value += name;
  return value;
}

std::string hex(std::string_view key) {
  std::string text;
  for (const char c : key) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace

Result<DirEntry> decode_listing(std::uint64_t cookie, std::string_view value) {
  wire::Reader in(value);
  if (in.take<std::uint8_t>() != kListingVersion) return fail(EBADMSG, "listing: version");
  DirEntry entry;
  entry.cookie = cookie;
  entry.type = in.take<std::uint8_t>();
  entry.inode = in.take<std::uint64_t>();
  entry.name = in.take_rest();
  if (!in.ok() || entry.name.empty()) return fail(EBADMSG, "listing: length");
  return entry;
}

Result<std::optional<LeftRows>> decode_left_rows(std::string_view value) {
  if (value.empty()) return std::optional<LeftRows>{};
  wire::Reader in(value);
  LeftRows left;
  left.parent = in.take<InodeNumber>();
  left.hash = in.take_bytes(in.take<std::uint8_t>());
  left.name = in.take_rest();
  if (!in.ok() || left.name.empty()) return fail(EBADMSG, "orphan record");
  return std::optional<LeftRows>{std::move(left)};
}

void Edit::put_inode(InodeNumber number, const InodeRecord& record) {
  batch_.put(Table::kInodes, keys::number(number), encode(record));
}
void Edit::remove_inode(InodeNumber number) {
  batch_.remove(Table::kInodes, keys::number(number));
}

void Edit::put_dentry(InodeNumber parent, std::string_view name, const DentryRecord& record) {
  batch_.put(Table::kDentries, keys::named(parent, name), encode(record));
  batch_.put(Table::kListings, keys::listing(parent, record.cookie),
             encode_listing(record, name));
  batch_.put(Table::kBackReferences, keys::back_reference(record.inode, parent, name), {});
}
void Edit::remove_dentry(InodeNumber parent, std::string_view name,
                         const DentryRecord& record) {
  batch_.remove(Table::kDentries, keys::named(parent, name));
  batch_.remove(Table::kListings, keys::listing(parent, record.cookie));
  batch_.remove(Table::kBackReferences, keys::back_reference(record.inode, parent, name));
}

void Edit::put_object(ObjectId id, const ObjectRecord& record) {
  batch_.put(Table::kObjects, keys::number(id), encode(record));
}
void Edit::make_object(ObjectId id, const ObjectRecord& record) {
  put_object(id, record);
  made_.push_back({.id = id, .device = record.device, .inode = record.inode});
}
void Edit::remove_object(ObjectId id, std::uint32_t device) {
  batch_.remove(Table::kObjects, keys::number(id));
  removed_.push_back({.id = id, .device = device, .inode = 0});
}

void Edit::put_xattr(InodeNumber inode, std::string_view name, std::string_view value) {
  batch_.put(Table::kXattrs, keys::named(inode, name), std::string(value));
}
void Edit::remove_xattr(InodeNumber inode, std::string_view name) {
  batch_.remove(Table::kXattrs, keys::named(inode, name));
}

void Edit::put_orphan_inode(InodeNumber number) {
  batch_.put(Table::kOrphans, keys::lettered(keys::kOrphanInode, number), {});
}
void Edit::put_orphan_inode(InodeNumber number, const LeftRows& left) {
  std::string value;
  value.reserve(sizeof left.parent + 1 + left.hash.size() + left.name.size());
  wire::put_le(value, left.parent);
  wire::put_le(value, static_cast<std::uint8_t>(left.hash.size()));
  value += left.hash;
  value += left.name;
  batch_.put(Table::kOrphans, keys::lettered(keys::kOrphanInode, number), std::move(value));
}
void Edit::remove_orphan_inode(InodeNumber number) {
  batch_.remove(Table::kOrphans, keys::lettered(keys::kOrphanInode, number));
}
void Edit::put_orphan_object(ObjectId id, std::uint32_t device) {
  std::string value;
  wire::put_le(value, device);
  batch_.put(Table::kOrphans, keys::lettered(keys::kOrphanObject, id), std::move(value));
}
void Edit::remove_orphan_object(ObjectId id) {
  batch_.remove(Table::kOrphans, keys::lettered(keys::kOrphanObject, id));
}

void Edit::put_block(std::uint64_t block, const BlockRecord& record) {
  batch_.put(Table::kBlocks, keys::number(block), encode(record));
}
void Edit::remove_block(std::uint64_t block) {
  batch_.remove(Table::kBlocks, keys::number(block));
}
void Edit::put_prefix(std::string_view hash, InodeNumber parent, std::string_view name) {
  batch_.put(Table::kPrefixes, keys::prefix(hash, parent, name), {});
}
void Edit::remove_prefix(std::string_view hash, InodeNumber parent, std::string_view name) {
  batch_.remove(Table::kPrefixes, keys::prefix(hash, parent, name));
}
void Edit::put_unread(InodeNumber directory) {
  batch_.put(Table::kMeta, keys::unread(directory), {});
}
void Edit::remove_unread(InodeNumber directory) {
  batch_.remove(Table::kMeta, keys::unread(directory));
}
void Edit::put_told() { batch_.put(Table::kMeta, std::string(keys::kTold), {}); }
void Edit::put_told_policy() { batch_.put(Table::kMeta, std::string(keys::kToldPolicy), {}); }

void Edit::put_unsealed(InodeNumber number) {
  batch_.put(Table::kUnsealed, keys::number(number), {});
}
void Edit::remove_unsealed(InodeNumber number) {
  batch_.remove(Table::kUnsealed, keys::number(number));
}

void Edit::put_pool_copy(InodeNumber number, const PoolCopy& copy) {
  batch_.put(Table::kPoolCopies, keys::lettered(keys::kCopyOfInode, number), encode(copy));
  batch_.put(Table::kPoolCopies, keys::by_fileid(copy.fileid, number), {});
}
void Edit::remove_pool_copy(InodeNumber number, const PoolCopy& copy) {
  batch_.remove(Table::kPoolCopies, keys::lettered(keys::kCopyOfInode, number));
  batch_.remove(Table::kPoolCopies, keys::by_fileid(copy.fileid, number));
}
void Edit::put_to_publish(InodeNumber number, std::uint64_t size) {
  batch_.put(Table::kPoolQueue, keys::lettered(keys::kToPublish, number), keys::number(size));
}
void Edit::remove_to_publish(InodeNumber number) {
  batch_.remove(Table::kPoolQueue, keys::lettered(keys::kToPublish, number));
}
void Edit::put_tombstone(std::string_view path, const Tombstone& tombstone) {
  batch_.put(Table::kPoolQueue, keys::lettered_path(keys::kTombstone, path), encode(tombstone));
}
void Edit::remove_tombstone(std::string_view path) {
  batch_.remove(Table::kPoolQueue, keys::lettered_path(keys::kTombstone, path));
}

void Edit::put_owner_change(std::string_view path, const OwnerChange& change) {
  batch_.put(Table::kPoolQueue, keys::lettered_path(keys::kOwnerChange, path), encode(change));
}
void Edit::remove_owner_change(std::string_view path) {
  batch_.remove(Table::kPoolQueue, keys::lettered_path(keys::kOwnerChange, path));
}

Catalog::Catalog(std::unique_ptr<Store> store) : store_(std::move(store)) {}
Catalog::~Catalog() = default;

Result<std::unique_ptr<Catalog>> Catalog::create(std::unique_ptr<Store> store,
                                                 std::string* problem) {
  std::unique_ptr<Catalog> catalog(new Catalog(std::move(store)));
  std::string text;
  if (const Result<void> loaded = catalog->load(&text); !loaded) {
    if (text.empty()) text = fmt::format("metadata database: {}", loaded.error().what);
    log_error("catalog_refused {}", text);
    if (problem != nullptr) *problem = std::move(text);
    return loaded.error();
  }
  return catalog;
}

Result<void> Catalog::load(std::string* problem) {
  const DatabaseState state = TRY(check_format(*store_, problem));
  if (state == DatabaseState::kNew) {
    WriteBatch batch;
    write_format(batch);
    std::string first;
    wire::put_le(first, kFirstId);
    batch.put(Table::kMeta, std::string(keys::kIds), std::move(first));
    TRY(store_->write(batch));
    TRY(store_->sync());
    next_id_.store(kFirstId);
    reserved_until_ = kFirstId;
    return {};
  }
  if (state == DatabaseState::kOlder) {
    WriteBatch batch;
    write_upgrade(batch);
    TRY(store_->write(batch));
    TRY(store_->sync());
    log_info("database event=upgraded format={}", kDatabaseFormat);
  }
  told_ = TRY(store_->get(Table::kMeta, keys::kTold)).has_value();
  told_policy_ = TRY(store_->get(Table::kMeta, keys::kToldPolicy)).has_value();
  const std::optional<std::string> ids = TRY(store_->get(Table::kMeta, keys::kIds));
  wire::Reader in(ids ? std::string_view(*ids) : std::string_view());
  reserved_until_ = in.take<std::uint64_t>();
  if (!in.done() || reserved_until_ < kFirstId || reserved_until_ > kMostNumbers) {
    *problem =
        "metadata database: damaged (its record of given ids is unreadable): restore the state "
        "directory from a backup, or start with an empty one";
    return fail(EBADMSG, "database: ids key");
  }
  next_id_.store(reserved_until_);
  const RunMarker last_run = TRY(run_marker());
  if (!last_run.clean) {
    const std::uint64_t given = reserved_until_ - kFirstId;
    last_run_ids_ = {reserved_until_ - std::min(given, 2 * kIdBlock), reserved_until_};
  }
  return {};
}

// Walks the entries of one list whose key is `prefix` and a number ≥ `from`.
Result<void> Catalog::walk(
    std::uint64_t owner, Table table, const std::string& prefix, std::uint64_t from,
    const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  Floors::Walk walk(floors_, owner);
  // A walk from further on says nothing of where the list begins.
  const bool from_start = from <= std::max<std::uint64_t>(walk.floor(), 1);
  std::string first_key = prefix;
  wire::put_be64(first_key, std::max(from, walk.floor()));

  std::uint64_t first = UINT64_MAX;
  bool found = false;
  const std::int64_t began = monotonic_now();
  std::int64_t first_after = 0;
  TRY(store_->scan(table, prefix, first_key, [&](std::string_view key, std::string_view value) {
    if (!found) {
      found = true;
      first_after = monotonic_now() - began;
      if (key.size() == prefix.size() + 8) first = wire::get_be64(key.substr(prefix.size()));
    }
    return visit(key, value);
  }));
  if (!found) first_after = monotonic_now() - began;
  if (from_start && first_after > kSlowWalk) walk.remember(first);
  return {};
}

Result<std::optional<DentryRecord>> Catalog::find_dentry(InodeNumber parent,
                                                         std::string_view name) {
  const std::string key = keys::named(parent, name);
  DentryCache::Found found = dentries_.find(key);
  if (!found.known) {
    found.value = TRY(store_->get(Table::kDentries, key));
    dentries_.remember(key, found.value, found.version);
  }
  if (!found.value) return std::optional<DentryRecord>{};
  return std::optional<DentryRecord>{TRY(decode_dentry(*found.value))};
}

Result<std::optional<InodeRecord>> Catalog::find_inode(InodeNumber number) {
  return find(*store_, Table::kInodes, keys::number(number), decode_inode);
}

Result<std::optional<ObjectRecord>> Catalog::find_object(ObjectId id) {
  return find(*store_, Table::kObjects, keys::number(id), decode_object);
}

Result<std::optional<std::string>> Catalog::find_xattr(InodeNumber inode,
                                                       std::string_view name) {
  return store_->get(Table::kXattrs, keys::named(inode, name));
}

Result<std::vector<std::string>> Catalog::list_xattrs(InodeNumber inode) {
  std::vector<std::string> names;
  TRY(each_xattr(inode, [&](std::string_view name, std::size_t) {
    names.emplace_back(name);
    return true;
  }));
  return names;
}

Result<void> Catalog::each_xattr(InodeNumber inode, const VisitXattr& visit) {
  return store_->scan(Table::kXattrs, keys::number(inode), "",
                      [&](std::string_view key, std::string_view value) {
                        const auto named = keys::to_named(key);
                        return !named || visit(named->name, value.size());
                      });
}

Result<std::vector<DirEntry>> Catalog::list_directory(InodeNumber parent, std::uint64_t after,
                                                      std::size_t limit) {
  std::vector<DirEntry> entries;
  if (limit == 0 || after == UINT64_MAX) return entries;
  std::optional<Error> damage;
  // Starting at the cookie, not at the directory, skips what was removed before it.
  TRY(walk(parent, Table::kListings, keys::number(parent), after + 1,
           [&](std::string_view key, std::string_view value) {
             const auto listing = keys::to_listing(key);
             Result<DirEntry> entry = listing ? decode_listing(listing->cookie, value)
                                              : fail(EBADMSG, "listing: key");
             if (!entry) {
               damage = entry.error();
               return false;
             }
             entries.push_back(std::move(*entry));
             return entries.size() < limit;
           }));
  if (damage) return *damage;
  return entries;
}

Result<bool> Catalog::directory_empty(InodeNumber parent) {
  bool empty = true;
  TRY(walk(parent, Table::kListings, keys::number(parent), 0,
           [&](std::string_view, std::string_view) {
             empty = false;
             return false;
           }));
  return empty;
}

Result<std::vector<std::pair<InodeNumber, std::string>>> Catalog::list_links(
    InodeNumber inode, std::size_t limit) {
  std::vector<std::pair<InodeNumber, std::string>> links;
  if (limit == 0) return links;
  TRY(store_->scan(Table::kBackReferences, keys::number(inode), "",
                   [&](std::string_view key, std::string_view) {
                     if (const auto link = keys::to_back_reference(key)) {
                       links.emplace_back(link->parent, link->name);
                     }
                     return links.size() < limit;
                   }));
  return links;
}

Result<std::vector<ObjectPlace>> Catalog::list_objects(ObjectId after, std::size_t limit) {
  std::vector<ObjectPlace> objects;
  if (limit == 0 || after == UINT64_MAX) return objects;
  TRY(store_->scan(Table::kObjects, "", keys::number(after + 1),
                   [&](std::string_view key, std::string_view value) {
                     const auto id = keys::to_number(key);
                     const Result<ObjectRecord> record = decode_object(value);
                     if (id && record)
                       objects.push_back(
                           {.id = *id, .device = record->device, .inode = record->inode});
                     return objects.size() < limit;
                   }));
  return objects;
}

Result<std::vector<InodeNumber>> Catalog::list_unsealed(InodeNumber after, std::size_t limit) {
  std::vector<InodeNumber> numbers;
  if (limit == 0 || after == UINT64_MAX) return numbers;
  TRY(store_->scan(Table::kUnsealed, "", keys::number(after + 1),
                   [&](std::string_view key, std::string_view) {
                     if (const auto number = keys::to_number(key)) numbers.push_back(*number);
                     return numbers.size() < limit;
                   }));
  return numbers;
}

Result<bool> Catalog::is_listed_unsealed(InodeNumber number) {
  return TRY(store_->get(Table::kUnsealed, keys::number(number))).has_value();
}

Result<std::vector<InodeNumber>> Catalog::list_orphan_inodes(InodeNumber after,
                                                             std::size_t limit) {
  std::vector<InodeNumber> numbers;
  if (limit == 0 || after == UINT64_MAX) return numbers;
  TRY(walk(Floors::kOrphanInodes, Table::kOrphans, std::string(1, keys::kOrphanInode),
           after + 1, [&](std::string_view key, std::string_view) {
             if (const auto number = keys::to_lettered(key)) numbers.push_back(*number);
             return numbers.size() < limit;
           }));
  return numbers;
}

Result<std::optional<LeftRows>> Catalog::find_left_rows(InodeNumber number) {
  const std::optional<std::string> value =
      TRY(store_->get(Table::kOrphans, keys::lettered(keys::kOrphanInode, number)));
  return decode_left_rows(value ? std::string_view(*value) : std::string_view{});
}

Result<std::vector<OrphanObject>> Catalog::list_orphan_objects(ObjectId after,
                                                               std::size_t limit) {
  std::vector<OrphanObject> orphans;
  if (limit == 0 || after == UINT64_MAX) return orphans;
  bool damaged = false;
  TRY(walk(Floors::kOrphanObjects, Table::kOrphans, std::string(1, keys::kOrphanObject),
           after + 1, [&](std::string_view key, std::string_view value) {
             wire::Reader in(value);
             const auto id = keys::to_lettered(key);
             const auto device = in.take<std::uint32_t>();
             damaged = !id || !in.done();
             if (!damaged) orphans.push_back({.id = *id, .device = device});
             return !damaged && orphans.size() < limit;
           }));
  if (damaged) return fail(EBADMSG, "orphan record");
  return orphans;
}

Result<std::optional<BlockRecord>> Catalog::find_block(std::uint64_t block) {
  return find(*store_, Table::kBlocks, keys::number(block), decode_block);
}

Result<void> Catalog::each_block(
    const std::optional<std::uint64_t>& after,
    const std::function<bool(std::uint64_t, const BlockRecord&)>& visit,
    const Damaged& damaged) {
  if (after == UINT64_MAX) return {};
  return store_->scan(Table::kBlocks, "", after ? keys::number(*after + 1) : "",
                      [&](std::string_view key, std::string_view value) {
                        const auto block = keys::to_number(key);
                        const Result<BlockRecord> record = decode_block(value);
                        if (!block || !record) {
                          damaged("block " + hex(key));
                          return true;
                        }
                        return visit(*block, *record);
                      });
}

Result<std::vector<PrefixName>> Catalog::list_prefix(std::string_view hash,
                                                     const std::optional<PrefixName>& after,
                                                     std::size_t limit) {
  std::vector<PrefixName> names;
  if (limit == 0 || hash.empty()) return names;
  const std::string rows = std::string(hash) + '\0';
  const std::string last = after ? keys::prefix(hash, after->parent, after->name) : rows;
  TRY(store_->scan(Table::kPrefixes, rows, last, [&](std::string_view key, std::string_view) {
    const auto prefix = keys::to_prefix(key);
    if (!prefix || key == last) return true;
    names.push_back({.hash = std::string(prefix->hash),
                     .parent = prefix->parent,
                     .name = std::string(prefix->name)});
    return names.size() < limit;
  }));
  return names;
}

Result<std::optional<std::string>> Catalog::find_prefix(
    std::string_view from, const std::function<Result<bool>(InodeNumber)>& takes) {
  std::optional<std::string> hash;
  Result<void> asked;
  TRY(store_->scan(Table::kPrefixes, "", from, [&](std::string_view key, std::string_view) {
    const auto prefix = keys::to_prefix(key);
    if (!prefix) return true;
    if (takes) {
      const Result<bool> taken = takes(prefix->parent);
      if (!taken) asked = taken.error();
      if (!taken || !*taken) return taken.ok();
    }
    hash = std::string(prefix->hash);
    return false;
  }));
  TRY(asked);
  return hash;
}

Result<std::optional<std::string>> Catalog::next_prefix(
    std::string_view after, const std::function<Result<bool>(InodeNumber)>& takes) {
  // Behind all rows of `after`: their hash is followed by a NUL.
  return find_prefix(after.empty() ? std::string() : std::string(after) + '\1', takes);
}

Result<std::vector<InodeNumber>> Catalog::list_unread(InodeNumber after, std::size_t limit) {
  std::vector<InodeNumber> directories;
  if (limit == 0) return directories;
  TRY(store_->scan(
      Table::kMeta, keys::kUnreadPrefix, "", [&](std::string_view key, std::string_view) {
        const auto number = keys::to_number(key.substr(keys::kUnreadPrefix.size()));
        if (number && *number > after) directories.push_back(*number);
        return directories.size() < limit;
      }));
  return directories;
}

Result<void> Catalog::each_inode(
    const std::function<bool(InodeNumber, const InodeRecord&)>& visit, const Damaged& damaged) {
  return store_->scan(Table::kInodes, "", "",
                      [&](std::string_view key, std::string_view value) {
                        const auto number = keys::to_number(key);
                        const Result<InodeRecord> record = decode_inode(value);
                        if (!number || !record) {
                          damaged("inode " + (number ? std::to_string(*number) : hex(key)));
                          return true;
                        }
                        return visit(*number, *record);
                      });
}

Result<std::optional<PoolCopy>> Catalog::find_pool_copy(InodeNumber number) {
  return find(*store_, Table::kPoolCopies, keys::lettered(keys::kCopyOfInode, number),
              decode_pool_copy);
}

Result<std::optional<Tombstone>> Catalog::find_tombstone(std::string_view path) {
  return find(*store_, Table::kPoolQueue, keys::lettered_path(keys::kTombstone, path),
              decode_tombstone);
}

Result<std::optional<OwnerChange>> Catalog::find_owner_change(std::string_view path) {
  return find(*store_, Table::kPoolQueue, keys::lettered_path(keys::kOwnerChange, path),
              decode_owner_change);
}

Result<void> Catalog::each_dentry(
    const std::function<bool(InodeNumber parent, const std::string& name, const DentryRecord&)>&
        visit,
    const Damaged& damaged) {
  return store_->scan(
      Table::kDentries, "", "", [&](std::string_view key, std::string_view value) {
        const auto named = keys::to_named(key);
        const Result<DentryRecord> record = decode_dentry(value);
        if (!named || !record) {
          damaged(named ? fmt::format("dentry {} in directory {}", named->name, named->owner)
                        : "dentry " + hex(key));
          return true;
        }
        return visit(named->owner, std::string(named->name), *record);
      });
}

Result<void> Catalog::each_listing(
    const std::function<bool(InodeNumber parent, const DirEntry&)>& visit,
    const Damaged& damaged) {
  return store_->scan(
      Table::kListings, "", "", [&](std::string_view key, std::string_view value) {
        const auto listing = keys::to_listing(key);
        const Result<DirEntry> entry = decode_listing(listing ? listing->cookie : 0, value);
        if (!listing || !entry) {
          damaged(listing ? fmt::format("listing entry {} of directory {}", listing->cookie,
                                        listing->parent)
                          : "listing entry " + hex(key));
          return true;
        }
        return visit(listing->parent, *entry);
      });
}

Result<void> Catalog::each_back_reference(
    const std::function<bool(InodeNumber inode, InodeNumber parent, const std::string& name)>&
        visit) {
  return store_->scan(
      Table::kBackReferences, "", "", [&](std::string_view key, std::string_view) {
        const auto link = keys::to_back_reference(key);
        return !link || visit(link->inode, link->parent, std::string(link->name));
      });
}

Result<void> Catalog::each_object(
    const std::function<bool(ObjectId, const ObjectRecord&)>& visit, const Damaged& damaged) {
  return store_->scan(Table::kObjects, "", "",
                      [&](std::string_view key, std::string_view value) {
                        const auto id = keys::to_number(key);
                        const Result<ObjectRecord> record = decode_object(value);
                        if (!id || !record) {
                          damaged("object " + (id ? std::to_string(*id) : hex(key)));
                          return true;
                        }
                        return visit(*id, *record);
                      });
}

Result<void> Catalog::each_xattr_owner(const std::function<bool(InodeNumber)>& visit) {
  std::optional<InodeNumber> last;
  return store_->scan(Table::kXattrs, "", "", [&](std::string_view key, std::string_view) {
    const auto named = keys::to_named(key);
    if (!named || last == named->owner) return true;
    last = named->owner;
    return visit(named->owner);
  });
}

Result<void> Catalog::commit(Edit&& edit) {
  if (edit.empty()) return {};
  if (refuses_to_wait()) return fail(kMustWait, "commit");
  std::vector<Floors::Entry> entries;
  std::vector<std::string_view> dentries;
  for (const WriteBatch::Operation& operation : edit.batch_.operations()) {
    if (operation.table == Table::kDentries) dentries.push_back(operation.key);
    if (operation.table == Table::kMeta && operation.key == keys::kTold) told_ = true;
    if (operation.table == Table::kMeta && operation.key == keys::kToldPolicy)
      told_policy_ = true;
    if (operation.is_delete) continue;
    if (operation.table == Table::kListings) {
      const auto listing = keys::to_listing(operation.key);
      entries.push_back({.owner = listing->parent, .number = listing->cookie});
    } else if (operation.table == Table::kOrphans) {
      const bool inode = operation.key.front() == keys::kOrphanInode;
      entries.push_back({.owner = inode ? Floors::kOrphanInodes : Floors::kOrphanObjects,
                         .number = *keys::to_lettered(operation.key)});
    }
  }
  const Floors::Writing writing(floors_, std::move(entries));
  const DentryCache::Changing changing(dentries_, std::move(dentries));
  object_count_.leaving(edit.removed_);
  const Result<void> written = write(edit.batch_);
  if (written.ok()) {
    object_count_.came(edit.made_);
  } else {
    object_count_.stayed(edit.removed_);
  }
  return written;
}

Result<void> Catalog::sync() { return store_->sync(); }

Result<void> Catalog::reserve_ids() {
  const std::uint64_t until = reserved_until_ + kIdBlock;
  std::string value;
  wire::put_le(value, until);
  WriteBatch batch;
  batch.put(Table::kMeta, std::string(keys::kIds), std::move(value));
  TRY(write(batch));
  // Backing files carry ids, and may survive a power cut that the record of this block would
  // not.
  TRY(store_->sync());
  reserved_until_ = until;
  return {};
}

Result<std::uint64_t> Catalog::next_id() {
  const std::lock_guard lock(ids_mutex_);
  if (next_id_.load() == reserved_until_) TRY(reserve_ids());
  return next_id_.fetch_add(1);
}

std::pair<std::uint64_t, std::uint64_t> Catalog::last_run_ids() const noexcept {
  return last_run_ids_;
}

std::uint64_t Catalog::memory_bytes() const { return store_->memory_bytes(); }

}  // namespace kvcachefs
