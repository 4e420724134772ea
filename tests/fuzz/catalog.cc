// Whatever rows stand in the database, reading them gives values or errors, and the check mends
// it: what it has repaired it finds in order the next time.
//
// The flag has the rows written over those of a small tree.
#include "tests/fuzz/catalog.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "backend/base/log.h"
#include "fs/check/check.h"
#include "fs/control_queries.h"
#include "fs/known/block_number.h"
#include "fs/known/file_policy.h"
#include "fs/known/tenants.h"
#include "metadata/catalog.h"
#include "metadata/keys.h"
#include "metadata/memory_store.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

// A store that outlives its catalog.
class BorrowedStore : public Store {
 public:
  explicit BorrowedStore(Store& store) : store_(store) {}
  Result<std::optional<std::string>> get(Table table, std::string_view key) override {
    return store_.get(table, key);
  }
  Result<void> scan(
      Table table, std::string_view prefix, std::string_view from,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) override {
    return store_.scan(table, prefix, from, visit);
  }
  Result<void> write(const WriteBatch& batch) override { return store_.write(batch); }
  Result<void> sync() override { return store_.sync(); }
  [[nodiscard]] std::uint64_t memory_bytes() const override { return store_.memory_bytes(); }
  [[nodiscard]] std::uint64_t disk_bytes() const override { return store_.disk_bytes(); }

 private:
  Store& store_;
};

Result<std::unique_ptr<Catalog>> open(Store& store, std::string& problem) {
  return Catalog::create(std::make_unique<BorrowedStore>(store), &problem);
}

InodeRecord inode_of(std::uint32_t mode, std::uint32_t nlink) {
  InodeRecord record;
  record.mode = mode;
  record.nlink = nlink;
  return record;
}

void fill(Catalog& catalog) {
  const std::string hash = "00112233445566778899aabbccddeeff";
  Edit edit;
  edit.put_inode(1, inode_of(S_IFDIR | 0755, 4));
  edit.put_inode(2, inode_of(S_IFDIR | 0755, 2));
  edit.put_inode(3, inode_of(S_IFDIR | 0755, 2));
  edit.put_dentry(1, "prefix", {.inode = 2, .type = DT_DIR, .cookie = 10});
  edit.put_dentry(1, "d", {.inode = 3, .type = DT_DIR, .cookie = 11});
  InodeRecord block = inode_of(S_IFREG | 0644, 1);
  block.state = DataState::kPublished;
  block.object = 20;
  block.stamp = {.size = 5, .mtime = 6, .ctime = 7};
  block.writer = {.boot = 1, .number = 2, .began = 3};
  edit.put_inode(4, block);
  edit.put_dentry(2, hash, {.inode = 4, .type = DT_REG, .cookie = 12});
  edit.make_object(20, {.inode = 4, .device = 0, .chunk_crc32c = {1}, .sealed = block.stamp});
  edit.put_block(block_number(2, hash), {.inode = 4, .hash = hash});
  edit.put_prefix(hash, 2, hash);
  edit.put_unsealed(4);
  InodeRecord link = inode_of(S_IFLNK | 0777, 1);
  link.target = "d";
  edit.put_inode(5, link);
  edit.put_dentry(1, "s", {.inode = 5, .type = DT_LNK, .cookie = 13});
  InodeRecord told = inode_of(S_IFDIR | 0755, 2);
  told.flags = kInodeHasXattr;
  edit.put_inode(3, told);
  edit.put_xattr(3, kPolicyXattr, "keep");
  edit.put_xattr(3, kQuotaXattr, "1GiB");
  edit.put_told_policy();
  edit.put_inode(6, inode_of(S_IFREG | 0644, 0));
  edit.put_orphan_inode(6, {.parent = 2, .name = hash, .hash = hash});
  edit.put_pool_copy(4, {.fileid = 1, .path_hash = 2, .size = 5, .mtime = 6, .keep = true});
  edit.put_to_publish(4, 5);
  edit.put_tombstone("d/x", {.fileid = 9, .is_directory = false});
  edit.put_owner_change("d/y", {.fileid = 8, .uid = 1, .mode = 0600});
  require(catalog.commit(std::move(edit)).ok());
  while (true) {
    const auto id = catalog.next_id();
    require(id.ok());
    if (*id > 40) break;
  }
  require(catalog.add_device({1}).ok());
  require(catalog.set_pool({2}).ok());
  require(catalog.set_run_marker({.clean = true, .boot_id = "b", .mount_ids = "m=1;"}).ok());
  require(catalog.set_machine_cut({.before = 3, .ended = 4}).ok());
  require(catalog.set_sealed_bytes(0, 4096).ok());
  require(catalog.set_metadata_bytes({{1000, 4096}}).ok());
}

template <class Value>
void readable(const Result<Value>& value) {
  require(value.ok() || value.error().code == EBADMSG);
}

void read_inode(Catalog& c, InodeNumber number) {
  readable(c.find_inode(number));
  readable(c.find_object(number));
  readable(c.list_xattrs(number));
  readable(c.list_directory(number, 0, 10));
  readable(c.directory_empty(number));
  readable(c.list_links(number, 10));
  readable(c.find_left_rows(number));
  readable(c.find_pool_copy(number));
  readable(c.list_by_fileid(number, 10));
  readable(own_told(c, number));
  readable(own_terms(c, number));
}

void read_lists(Catalog& c) {
  readable(c.list_objects(0, 10));
  readable(c.list_unsealed(0, 10));
  readable(c.list_orphan_inodes(0, 10));
  readable(c.list_orphan_objects(0, 10));
  readable(c.list_pool_copies(0, 10));
  readable(c.list_queued(0, 10));
  readable(c.list_tombstones("", 10));
  readable(c.list_owner_changes("", 10));
  readable(c.next_prefix(""));
  readable(c.list_unread(0, 10));
  readable(c.machine_cut());
  readable(c.uuid());
  readable(c.pool());
  readable(c.sealed_bytes(0));
  readable(c.metadata_bytes());
  readable(c.devices());
  const auto damaged = [](const std::string& what) { require(!what.empty()); };
  readable(c.each_inode([](auto&&...) { return true; }, damaged));
  readable(c.each_object([](auto&&...) { return true; }, damaged));
  readable(c.each_dentry([](auto&&...) { return true; }, damaged));
  readable(c.each_listing([](auto&&...) { return true; }, damaged));
  readable(c.each_block(
      std::nullopt, [](auto&&...) { return true; }, damaged));
  readable(c.each_back_reference([](auto&&...) { return true; }));
  readable(c.each_xattr_owner([](auto&&...) { return true; }));
}

void ask(Catalog& c) {
  RecordedOrder order(c);
  ControlRequest request;
  for (const char* command :
       {"objects", "find", "hashes", "session", "sessions", "chain", "children"}) {
    request.command = command;
    request.word = "00112233445566778899aabbccddeeff";
    request.block = block_number(2, request.word);
    const Result<std::string> answer = answer_query(c, order, request);
    require(answer.ok() ? answer->find('\n') == std::string::npos
                        : answer.error().code == EBADMSG);
  }
}

CheckSummary repair(Store& store, Catalog& catalog) {
  static std::FILE* const nowhere = std::fopen("/dev/null", "w");
  require(nowhere != nullptr);
  const Result<CheckSummary> summary =
      Check({.store = store, .catalog = catalog, .devices = {}, .repair = true, .out = nowhere})
          .run();
  require(summary.ok());
  return *summary;
}

}  // namespace

std::vector<Row> decode_rows(std::string_view bytes) {
  std::vector<Row> rows;
  const auto take = [&bytes](std::size_t count) {
    const std::string_view taken = bytes.substr(0, count);
    bytes.remove_prefix(taken.size());
    return taken;
  };
  const auto take_byte = [&take]() -> unsigned {
    const std::string_view byte = take(1);
    return byte.empty() ? 0U : static_cast<unsigned char>(byte.front());
  };
  while (!bytes.empty()) {
    const unsigned table = take_byte();
    Row row{.table = static_cast<Table>(table % 128 % kTableCount), .is_delete = table >= 128};
    row.key = take(take_byte());
    row.value = take(take_byte());
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string encode_rows(const std::vector<Row>& rows) {
  std::string bytes;
  for (const Row& row : rows) {
    require(row.key.size() < 256 && row.value.size() < 256);
    bytes += static_cast<char>(static_cast<unsigned>(row.table) + (row.is_delete ? 128 : 0));
    bytes += static_cast<char>(row.key.size());
    bytes += row.key;
    bytes += static_cast<char>(row.value.size());
    bytes += row.value;
  }
  return bytes;
}

const std::vector<Row>& sample_rows() {
  static const std::vector<Row> sample = [] {
    MemoryStore store;
    std::string problem;
    const auto catalog = open(store, problem);
    require(catalog.ok());
    fill(**catalog);
    // Each run has the same one.
    WriteBatch batch;
    batch.put(Table::kMeta, std::string(keys::kUuid), std::string(16, 'u'));
    require(store.write(batch).ok());
    std::vector<Row> rows;
    for (std::size_t table = 0; table < kTableCount; ++table)
      require(store
                  .scan(static_cast<Table>(table), "", "",
                        [&](std::string_view key, std::string_view value) {
                          rows.push_back({.table = static_cast<Table>(table),
                                          .key = std::string(key),
                                          .value = std::string(value)});
                          return true;
                        })
                  .ok());
    return rows;
  }();
  return sample;
}

bool catalog(std::string_view input) {
  static const bool is_quiet = log_open({.file = "", .level = LogLevel::kOff}).ok();
  require(is_quiet);
  const auto [reader, over_sample, rest] = choose(input, 1);
  MemoryStore store;
  WriteBatch batch;
  const auto put = [&batch](const Row& row) {
    if (row.is_delete)
      batch.remove(row.table, row.key);
    else
      batch.put(row.table, row.key, row.value);
  };
  if (over_sample)
    for (const Row& row : sample_rows()) put(row);
  for (const Row& row : decode_rows(rest)) put(row);
  require(store.write(batch).ok());

  std::string problem;
  {
    const auto catalog = open(store, problem);
    if (!catalog.ok()) {
      require(!problem.empty());
      require(catalog.error().code == EBADMSG || catalog.error().code == EPROTONOSUPPORT);
      return false;
    }
    for (InodeNumber number = 0; number < 8; ++number) read_inode(**catalog, number);
    read_lists(**catalog);
    ask(**catalog);
    static_cast<void>(repair(store, **catalog));
  }
  const auto catalog = open(store, problem);
  require(catalog.ok());
  require(repair(store, **catalog).problems == 0);
  return true;
}

}  // namespace kvcachefs::fuzz
