// Whatever stands on the disk, reading it gives a record or an error: records, the catalog's
// own facts, superblocks. And whatever decodes is exactly what would be written.
//
// The first byte chooses the reader. The second chooses raw bytes (what follows is the record)
// or a patch: what follows edits a valid record, in triples of a 16-bit offset and a byte, so
// that the interesting depths are reached without a corpus.
#include <dirent.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/log.h"
#include "backend/superblock.h"
#include "metadata/catalog.h"
#include "metadata/memory_store.h"
#include "metadata/record.h"

namespace {

using namespace kvcachefs;

void require(bool holds) {
  if (!holds) std::abort();
}

const std::vector<std::string>& seeds() {
  static const std::vector<std::string> all = [] {
    InodeRecord inode;
    inode.mode = S_IFLNK | 0777;
    inode.rdev = 1;
    inode.object = 2;
    inode.previous_object = 3;
    inode.previous_state = DataState::kSealed;
    inode.stamp = {.size = 4, .mtime = 5, .ctime = 6};
    inode.target = "to/there";
    ObjectRecord object;
    object.inode = 1;
    object.sealed = {.size = 300'000, .mtime = 5, .ctime = 6};
    object.chunk_crc32c = {1, 2};
    return std::vector<std::string>{
        encode(inode),
        encode(object),
        encode(DentryRecord{.inode = 1, .type = DT_REG, .cookie = 2}),
        encode(BlockRecord{.inode = 1, .has_parent = true, .parent = 2, .hash = "ab"}),
        encode_superblock({.device = {1}, .catalog = {2}}),
        encode(PoolCopy{.fileid = 1, .path_hash = 2, .size = 3, .mtime = 4, .keep = true}),
        encode(Tombstone{.fileid = 1, .is_directory = true}),
        encode(OwnerChange{.fileid = 1, .uid = 2, .gid = 3, .mode = 0640, .keep = true})};
  }();
  return all;
}

// What a catalog makes of the value under every key that it reads, and of the key itself.
void read_catalog(std::string_view bytes) {
  auto store = std::make_unique<MemoryStore>();
  Store& below = *store;
  const auto catalog = Catalog::create(std::move(store));
  require(catalog.ok());
  Catalog& c = **catalog;
  const std::string value(bytes);
  const std::string number("\0\0\0\0\0\0\0\5", 8);
  WriteBatch batch;
  for (std::size_t table = 1; table < kTableCount; ++table) {
    const auto into = static_cast<Table>(table);
    batch.put(into, number, value);
    batch.put(into, number + number, value);
    batch.put(into, number + "name", value);
    for (const char* letter : {"o", "i", "f", "p"}) batch.put(into, letter + number, value);
    batch.put(into, "t", value);
    batch.put(into, value, value);
  }
  batch.put(Table::kMeta, "run", value);
  batch.put(Table::kMeta, "uuid", value);
  batch.put(Table::kMeta, std::string("device/\0\0\0\0", 11), value);
  require(below.write(batch).ok());

  (void)c.find_inode(5);
  (void)c.find_object(5);
  (void)c.find_dentry(5, "name");
  (void)c.find_xattr(5, "name");
  (void)c.list_xattrs(5);
  (void)c.list_directory(5, 0, 10);
  (void)c.directory_empty(5);
  (void)c.list_links(5, 10);
  (void)c.list_unsealed(0, 10);
  (void)c.list_orphan_inodes(0, 10);
  (void)c.list_orphan_objects(0, 10);
  (void)c.find_pool_copy(5);
  (void)c.list_by_fileid(5, 10);
  (void)c.list_to_publish(0, 10);
  (void)c.find_tombstone("");
  (void)c.list_tombstones("", 10);
  (void)c.find_owner_change("");
  (void)c.list_owner_changes("", 10);
  (void)c.run_marker();
  (void)c.machine_cut();
  (void)c.uuid();
  (void)c.devices();
  const auto damaged = [](const std::string&) {};
  (void)c.each_inode([](auto&&...) { return true; }, damaged);
  (void)c.each_object([](auto&&...) { return true; }, damaged);
  (void)c.each_dentry([](auto&&...) { return true; }, damaged);
  (void)c.each_listing([](auto&&...) { return true; }, damaged);
  (void)c.each_back_reference([](auto&&...) { return true; });
  (void)c.each_xattr_owner([](auto&&...) { return true; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = log_open({.file = "", .level = LogLevel::kOff}).ok();
  require(quiet);
  if (size < 2) return 0;
  const unsigned reader = data[0] % 8;
  std::string bytes;
  if (data[1] % 2 == 0) {
    bytes.assign(reinterpret_cast<const char*>(data) + 2, size - 2);
  } else {
    bytes = seeds()[reader % seeds().size()];
    for (std::size_t at = 2; at + 3 <= size; at += 3) {
      const std::size_t offset = (std::size_t{data[at]} << 8 | data[at + 1]) % bytes.size();
      bytes[offset] = static_cast<char>(data[at + 2]);
    }
  }
  switch (reader) {
    case 0:
      if (const auto record = decode_inode(bytes); record.ok())
        require(encode(*record) == bytes);
      break;
    case 1:
      if (const auto record = decode_object(bytes); record.ok())
        require(encode(*record) == bytes);
      break;
    case 2:
      if (const auto record = decode_dentry(bytes); record.ok())
        require(encode(*record) == bytes);
      break;
    case 3:
      if (const auto record = decode_block(bytes); record.ok())
        require(encode(*record) == bytes);
      break;
    case 4:
      (void)decode_superblock(bytes);
      break;
    case 5:
      // One of an older version is written as one of now.
      if (const auto record = decode_pool_copy(bytes); record.ok())
        require(*decode_pool_copy(encode(*record)) == *record &&
                (bytes[0] == 1 || encode(*record) == bytes));
      break;
    case 6:
      if (const auto record = decode_tombstone(bytes); record.ok())
        require(encode(*record) == bytes);
      break;
    case 7:
      if (const auto record = decode_owner_change(bytes); record.ok())
        require(encode(*record) == bytes);
      break;
    default:
      read_catalog(bytes);
      break;
  }
  return 0;
}
