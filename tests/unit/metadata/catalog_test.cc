#include "metadata/catalog.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "metadata/memory_store.h"
#include "metadata/rocksdb_store.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

// Hands a store that outlives the catalog to it, so that a test can open a second catalog on
// what is left.
class Borrowed : public Store {
 public:
  explicit Borrowed(Store& store) : store_(store) {}
  Result<std::optional<std::string>> get(Table table, std::string_view key) override {
    return store_.get(table, key);
  }
  Result<void> scan(
      Table table, std::string_view prefix, std::string_view from,
      const std::function<bool(std::string_view, std::string_view)>& visit) override {
    return store_.scan(table, prefix, from, visit);
  }
  Result<void> write(const WriteBatch& batch) override { return store_.write(batch); }
  Result<void> sync() override { return store_.sync(); }
  [[nodiscard]] std::uint64_t memory_bytes() const override { return store_.memory_bytes(); }
  [[nodiscard]] std::uint64_t disk_bytes() const override { return store_.disk_bytes(); }

 private:
  Store& store_;
};

// Fails every call with one error.
class Broken : public Store {
 public:
  explicit Broken(int code) : code_(code) {}
  Result<std::optional<std::string>> get(Table, std::string_view) override { return error(); }
  Result<void> scan(Table, std::string_view, std::string_view,
                    const std::function<bool(std::string_view, std::string_view)>&) override {
    return error();
  }
  Result<void> write(const WriteBatch&) override { return error(); }
  Result<void> sync() override { return error(); }
  [[nodiscard]] std::uint64_t memory_bytes() const override { return 0; }
  [[nodiscard]] std::uint64_t disk_bytes() const override { return 0; }

 private:
  Error error() const { return fail(code_, "broken on purpose"); }
  int code_;
};

class CatalogTest : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }
  // A new run on the same database; the last one ended as a crash does.
  void reopen() {
    catalog_.reset();
    auto catalog = Catalog::create(std::make_unique<Borrowed>(store_));
    ASSERT_OK(catalog);
    catalog_ = std::move(*catalog);
  }
  template <class Change>
  void commit(Change change) {
    Edit edit;
    change(edit);
    ASSERT_OK(catalog_->commit(std::move(edit)));
  }
  void put_raw(Table table, std::string key, std::string value) {
    WriteBatch batch;
    batch.put(table, std::move(key), std::move(value));
    ASSERT_OK(store_.write(batch));
  }
  static std::string key(std::uint64_t number) {
    std::string bytes;
    for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
    return bytes;
  }

  MemoryStore store_;
  std::unique_ptr<Catalog> catalog_;
};

InodeRecord directory() {
  InodeRecord record;
  record.mode = S_IFDIR | 0755;
  record.nlink = 2;
  return record;
}

ObjectRecord object_of(InodeNumber inode, std::uint32_t device) {
  ObjectRecord record;
  record.inode = inode;
  record.device = device;
  return record;
}

TEST_F(CatalogTest, FindsWhatWasCommitted) {
  ObjectRecord object;
  object.inode = 5;
  object.chunk_crc32c = {1, 2, 3};
  const DentryRecord dentry{.inode = 5, .type = DT_REG, .cookie = 9};
  commit([&](Edit& edit) {
    edit.put_inode(5, directory());
    edit.put_object(6, object);
    edit.put_dentry(1, "name", dentry);
    edit.put_xattr(5, "user.a", std::string_view("\0b", 2));
  });
  EXPECT_EQ(directory(), **catalog_->find_inode(5));
  EXPECT_EQ(object, **catalog_->find_object(6));
  EXPECT_EQ(dentry, **catalog_->find_dentry(1, "name"));
  EXPECT_EQ(std::string("\0b", 2), **catalog_->find_xattr(5, "user.a"));
}

TEST_F(CatalogTest, WhatIsNotThereIsNoError) {
  EXPECT_FALSE(catalog_->find_inode(5)->has_value());
  EXPECT_FALSE(catalog_->find_object(5)->has_value());
  EXPECT_FALSE(catalog_->find_dentry(1, "name")->has_value());
  EXPECT_FALSE(catalog_->find_xattr(5, "user.a")->has_value());
  EXPECT_TRUE(catalog_->list_xattrs(5)->empty());
  EXPECT_TRUE(catalog_->list_directory(5, 0, 10)->empty());
  EXPECT_TRUE(*catalog_->directory_empty(5));
  EXPECT_TRUE(catalog_->list_links(5, 10)->empty());
  EXPECT_TRUE(catalog_->list_unsealed(0, 10)->empty());
  EXPECT_TRUE(catalog_->list_orphan_inodes(0, 10)->empty());
  EXPECT_TRUE(catalog_->list_orphan_objects(0, 10)->empty());
}

TEST_F(CatalogTest, RemovesWhatWasCommitted) {
  const DentryRecord dentry{.inode = 5, .type = DT_REG, .cookie = 9};
  commit([&](Edit& edit) {
    edit.put_inode(5, directory());
    edit.put_object(6, object_of(5, 0));
    edit.put_dentry(1, "name", dentry);
    edit.put_xattr(5, "user.a", "b");
    edit.put_unsealed(5);
    edit.put_orphan_inode(5);
    edit.put_orphan_object(6, 3);
  });
  commit([&](Edit& edit) {
    edit.remove_inode(5);
    edit.remove_object(6, 0);
    edit.remove_dentry(1, "name", dentry);
    edit.remove_xattr(5, "user.a");
    edit.remove_unsealed(5);
    edit.remove_orphan_inode(5);
    edit.remove_orphan_object(6);
  });
  int left = 0;
  for (std::size_t table = 1; table < kTableCount; ++table) {
    ASSERT_OK(
        store_.scan(static_cast<Table>(table), "", "", [&](std::string_view, std::string_view) {
          ++left;
          return true;
        }));
  }
  EXPECT_EQ(0, left);
}

TEST_F(CatalogTest, NamesAreBytes) {
  for (const std::string& name : {std::string("new\nline"), std::string("\xff\xfe"),
                                  std::string(255, 'n'), std::string("a"), std::string("aa")}) {
    const DentryRecord dentry{.inode = 5, .type = DT_REG, .cookie = *catalog_->next_id()};
    commit([&](Edit& edit) { edit.put_dentry(1, name, dentry); });
    EXPECT_EQ(dentry, **catalog_->find_dentry(1, name));
    EXPECT_EQ(name, catalog_->list_directory(1, dentry.cookie - 1, 1)->at(0).name);
  }
  EXPECT_EQ(5u, catalog_->list_links(5, 10)->size());
}

TEST_F(CatalogTest, ListsADirectoryInCookieOrderInSteps) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    // Names in another order than the cookies.
    commit([&](Edit& edit) {
      edit.put_dentry(1, "name" + std::to_string(i * 37 % 100),
                      {.inode = 1000 + i, .type = DT_REG, .cookie = 10 + i});
      edit.put_dentry(2, "elsewhere" + std::to_string(i),
                      {.inode = 2000 + i, .type = DT_REG, .cookie = 10 + i});
    });
  }
  std::uint64_t after = 0;
  std::set<std::string> names;
  for (;;) {
    const auto entries = catalog_->list_directory(1, after, 7);
    ASSERT_OK(entries);
    if (entries->empty()) break;
    EXPECT_LE(entries->size(), 7u);
    for (const DirEntry& entry : *entries) {
      EXPECT_GT(entry.cookie, after);
      after = entry.cookie;
      EXPECT_EQ(1000 + entry.cookie - 10, entry.inode);
      EXPECT_EQ(DT_REG, entry.type);
      names.insert(entry.name);
    }
  }
  EXPECT_EQ(100u, names.size());
  EXPECT_TRUE(catalog_->list_directory(1, UINT64_MAX, 7)->empty());
  EXPECT_TRUE(catalog_->list_directory(1, 0, 0)->empty());
  EXPECT_FALSE(*catalog_->directory_empty(1));
  EXPECT_TRUE(*catalog_->directory_empty(3));
}

TEST_F(CatalogTest, ListsTheNamesOfAnInode) {
  commit([&](Edit& edit) {
    edit.put_dentry(1, "a", {.inode = 5, .type = DT_REG, .cookie = 10});
    edit.put_dentry(2, "b", {.inode = 5, .type = DT_REG, .cookie = 11});
    edit.put_dentry(2, "c", {.inode = 6, .type = DT_REG, .cookie = 12});
  });
  using Links = std::vector<std::pair<InodeNumber, std::string>>;
  EXPECT_EQ((Links{{1, "a"}, {2, "b"}}), *catalog_->list_links(5, 10));
  EXPECT_EQ((Links{{1, "a"}}), *catalog_->list_links(5, 1));
  EXPECT_TRUE(catalog_->list_links(5, 0)->empty());
}

TEST_F(CatalogTest, ListsXattrNames) {
  commit([&](Edit& edit) {
    edit.put_xattr(5, "user.b", "1");
    edit.put_xattr(5, "user.a", "2");
    edit.put_xattr(6, "user.c", "3");
  });
  EXPECT_EQ((std::vector<std::string>{"user.a", "user.b"}), *catalog_->list_xattrs(5));
  std::vector<InodeNumber> owners;
  ASSERT_OK(catalog_->each_xattr_owner([&](InodeNumber inode) {
    owners.push_back(inode);
    return true;
  }));
  EXPECT_EQ((std::vector<InodeNumber>{5, 6}), owners);
}

TEST_F(CatalogTest, ListsUnsealedAndOrphansInSteps) {
  for (std::uint64_t i = 1; i <= 10; ++i) {
    commit([&](Edit& edit) {
      edit.put_unsealed(i * 300);
      edit.put_orphan_inode(i * 300);
      edit.put_orphan_object(i * 300, static_cast<std::uint32_t>(i));
    });
  }
  EXPECT_EQ((std::vector<InodeNumber>{300, 600, 900}), *catalog_->list_unsealed(0, 3));
  EXPECT_EQ((std::vector<InodeNumber>{1200, 1500}), *catalog_->list_unsealed(900, 2));
  EXPECT_EQ((std::vector<InodeNumber>{300, 600}), *catalog_->list_orphan_inodes(0, 2));
  EXPECT_EQ((std::vector<InodeNumber>{2700, 3000}), *catalog_->list_orphan_inodes(2400, 5));
  EXPECT_EQ(10u, catalog_->list_orphan_inodes(0, 100)->size());
  EXPECT_TRUE(*catalog_->is_listed_unsealed(300));
  EXPECT_FALSE(*catalog_->is_listed_unsealed(301));
  const auto objects = catalog_->list_orphan_objects(2400, 5);
  ASSERT_OK(objects);
  ASSERT_EQ(2u, objects->size());
  EXPECT_EQ(2700u, objects->at(0).id);
  EXPECT_EQ(9u, objects->at(0).device);
}

TEST_F(CatalogTest, KnowsWhatStandsOnThePool) {
  const PoolCopy copy{.fileid = 7, .path_hash = 8, .size = 9, .mtime = 10};
  commit([&](Edit& edit) {
    edit.put_pool_copy(5, copy);
    edit.put_pool_copy(6, copy);
    edit.put_pool_copy(4, {.fileid = 70});
  });
  EXPECT_EQ(copy, *catalog_->find_pool_copy(5));
  EXPECT_EQ(std::nullopt, *catalog_->find_pool_copy(7));
  // A server gives a number again.
  EXPECT_EQ((std::vector<InodeNumber>{5, 6}), *catalog_->list_by_fileid(7, 10));
  EXPECT_EQ((std::vector<InodeNumber>{5}), *catalog_->list_by_fileid(7, 1));
  commit([&](Edit& edit) { edit.remove_pool_copy(5, copy); });
  EXPECT_EQ(std::nullopt, *catalog_->find_pool_copy(5));
  EXPECT_EQ((std::vector<InodeNumber>{6}), *catalog_->list_by_fileid(7, 10));
  EXPECT_EQ(std::nullopt, *catalog_->pool());
  ASSERT_OK(catalog_->set_pool(DeviceUuid{1, 2}));
  EXPECT_EQ((DeviceUuid{1, 2}), *catalog_->pool());
}

TEST_F(CatalogTest, ListsTheWorkForThePoolInSteps) {
  for (InodeNumber i = 1; i <= 5; ++i) {
    commit([&](Edit& edit) {
      edit.put_to_publish(i * 300, i);
      edit.put_tombstone("d/" + std::to_string(i), {.fileid = i});
    });
  }
  EXPECT_EQ((std::vector<InodeNumber>{300, 600}), *catalog_->list_to_publish(0, 2));
  EXPECT_EQ((std::vector<InodeNumber>{900, 1200, 1500}), *catalog_->list_to_publish(600, 10));
  const auto queued = catalog_->list_queued(900, 10);
  ASSERT_EQ(2U, queued->size());
  EXPECT_EQ(4U, queued->front().size);
  commit([&](Edit& edit) { edit.remove_to_publish(300); });
  EXPECT_EQ((std::vector<InodeNumber>{600}), *catalog_->list_to_publish(0, 1));
  EXPECT_EQ((Tombstone{.fileid = 3}), *catalog_->find_tombstone("d/3"));
  EXPECT_EQ(std::nullopt, *catalog_->find_tombstone("d/33"));
  const auto first = catalog_->list_tombstones("", 2);
  ASSERT_OK(first);
  ASSERT_EQ(2u, first->size());
  EXPECT_EQ("d/1", first->at(0).first);
  EXPECT_EQ(2u, first->at(1).second.fileid);
  const auto rest = catalog_->list_tombstones("d/2", 10);
  ASSERT_OK(rest);
  EXPECT_EQ(3u, rest->size());
  commit([&](Edit& edit) { edit.remove_tombstone("d/3"); });
  EXPECT_EQ(2u, catalog_->list_tombstones("d/2", 10)->size());
}

TEST_F(CatalogTest, AnOwnerChangeStandsBesideATombstoneOfItsPath) {
  const OwnerChange change{.fileid = 1, .uid = 2, .gid = 3, .mode = 0600};
  commit([&](Edit& edit) {
    edit.put_owner_change("a/b", {.fileid = 9, .uid = 9, .gid = 9, .mode = 0});
    edit.put_tombstone("a/b", {.fileid = 1});
    edit.put_owner_change("a/c", change);
  });
  commit([&](Edit& edit) { edit.put_owner_change("a/b", change); });
  EXPECT_EQ(change, *catalog_->find_owner_change("a/b"));
  EXPECT_EQ(std::nullopt, *catalog_->find_owner_change("a"));
  EXPECT_EQ("a/b", catalog_->list_owner_changes("", 1)->at(0).first);
  const auto rest = catalog_->list_owner_changes("a/b", 10);
  ASSERT_EQ(1u, rest->size());
  EXPECT_EQ(std::pair(std::string("a/c"), change), rest->at(0));
  EXPECT_EQ(1u, catalog_->list_tombstones("", 10)->size());
  commit([&](Edit& edit) { edit.remove_owner_change("a/b"); });
  EXPECT_EQ(std::nullopt, *catalog_->find_owner_change("a/b"));
  EXPECT_EQ((Tombstone{.fileid = 1}), *catalog_->find_tombstone("a/b"));
}

TEST_F(CatalogTest, AnOrphanSaysWhatRowsItLeft) {
  const LeftRows left{.parent = 1, .name = "its name", .hash = std::string(129, 'a')};
  commit([&](Edit& edit) {
    edit.put_orphan_inode(5);
    edit.put_orphan_inode(6, left);
  });
  EXPECT_FALSE(*catalog_->find_left_rows(4));
  EXPECT_FALSE(*catalog_->find_left_rows(5));
  EXPECT_EQ(left, *catalog_->find_left_rows(6));
  EXPECT_EQ((std::vector<InodeNumber>{5, 6}), *catalog_->list_orphan_inodes(0, 10));
  commit([&](Edit& edit) { edit.remove_orphan_inode(6); });
  EXPECT_FALSE(*catalog_->find_left_rows(6));
}

TEST_F(CatalogTest, WalksWholeTables) {
  commit([&](Edit& edit) {
    edit.put_inode(5, directory());
    edit.put_object(6, object_of(5, 2));
    edit.put_dentry(1, "name", {.inode = 5, .type = DT_DIR, .cookie = 9});
  });
  const Catalog::Damaged none = [](const std::string& what) { ADD_FAILURE() << what; };
  int seen = 0;
  EXPECT_OK(catalog_->each_inode(
      [&](InodeNumber number, const InodeRecord& record) {
        seen += number == 5 && record == directory();
        return true;
      },
      none));
  EXPECT_OK(catalog_->each_object(
      [&](ObjectId id, const ObjectRecord& record) {
        seen += id == 6 && record.device == 2;
        return true;
      },
      none));
  EXPECT_OK(catalog_->each_dentry(
      [&](InodeNumber parent, const std::string& name, const DentryRecord& record) {
        seen += parent == 1 && name == "name" && record.cookie == 9;
        return true;
      },
      none));
  EXPECT_OK(catalog_->each_listing(
      [&](InodeNumber parent, const DirEntry& entry) {
        seen += parent == 1 && entry.name == "name" && entry.inode == 5;
        return true;
      },
      none));
  EXPECT_OK(catalog_->each_back_reference(
      [&](InodeNumber inode, InodeNumber parent, const std::string& name) {
        seen += inode == 5 && parent == 1 && name == "name";
        return true;
      }));
  EXPECT_EQ(5, seen);
}

TEST_F(CatalogTest, DamagedRecordsAreErrorsOrPassedAside) {
  commit([&](Edit& edit) { edit.put_inode(5, directory()); });
  put_raw(Table::kInodes, key(4), "garbage");
  put_raw(Table::kInodes, "short", "garbage");
  put_raw(Table::kObjects, key(4), "garbage");
  put_raw(Table::kDentries, key(1) + "name", "garbage");
  put_raw(Table::kListings, key(1) + key(9), "garbage");
  put_raw(Table::kOrphans, "o" + key(9), "garbage");
  EXPECT_ERROR(EBADMSG, catalog_->find_inode(4));
  EXPECT_ERROR(EBADMSG, catalog_->find_object(4));
  EXPECT_ERROR(EBADMSG, catalog_->find_dentry(1, "name"));
  EXPECT_ERROR(EBADMSG, catalog_->list_directory(1, 0, 10));
  EXPECT_ERROR(EBADMSG, catalog_->list_orphan_objects(0, 10));
  EXPECT_FALSE(*catalog_->directory_empty(1))
      << "what cannot be read is not thrown away with its directory";

  std::vector<std::string> damaged;
  const Catalog::Damaged note = [&](const std::string& what) { damaged.push_back(what); };
  int visited = 0;
  EXPECT_OK(catalog_->each_inode([&](InodeNumber, const InodeRecord&) { return ++visited > 0; },
                                 note));
  EXPECT_EQ(1, visited);
  EXPECT_OK(catalog_->each_object([](ObjectId, const ObjectRecord&) { return true; }, note));
  EXPECT_OK(catalog_->each_dentry(
      [](InodeNumber, const std::string&, const DentryRecord&) { return true; }, note));
  EXPECT_OK(catalog_->each_listing([](InodeNumber, const DirEntry&) { return true; }, note));
  ASSERT_EQ(5u, damaged.size());
  EXPECT_EQ("inode 4", damaged[0]);
}

TEST_F(CatalogTest, GivesEveryIdOnce) {
  std::set<std::uint64_t> given;
  for (int run = 0; run < 3; ++run) {
    for (int i = 0; i < 1000; ++i) {
      const auto id = catalog_->next_id();
      ASSERT_OK(id);
      EXPECT_GT(*id, kRootInode);
      EXPECT_TRUE(given.insert(*id).second) << *id;
    }
    reopen();
  }
}

TEST_F(CatalogTest, GivesEveryIdOnceToManyThreads) {
  std::vector<std::vector<std::uint64_t>> ids(4);
  std::vector<std::thread> threads;
  for (auto& mine : ids) {
    threads.emplace_back([this, &mine] {
      for (int i = 0; i < 50'000; ++i) mine.push_back(*catalog_->next_id());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  for (const auto& mine : ids) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(200'000u, all.size());
}

TEST_F(CatalogTest, KnowsTheIdsThatACrashMayHaveLeftWithoutARecord) {
  EXPECT_EQ((std::pair<std::uint64_t, std::uint64_t>{0, 0}), catalog_->last_run_ids());
  std::uint64_t last = 0;
  for (int i = 0; i < 100'000; ++i) last = *catalog_->next_id();
  reopen();
  const auto [first, end] = catalog_->last_run_ids();
  EXPECT_LE(first, last - 65'536 + 1);
  EXPECT_GT(end, last);
  EXPECT_GE(*catalog_->next_id(), end);

  ASSERT_OK(catalog_->set_run_marker({.clean = true, .boot_id = "boot", .mount_ids = "mount"}));
  reopen();
  EXPECT_EQ(catalog_->last_run_ids().first, catalog_->last_run_ids().second)
      << "a clean end leaves none";
}

TEST_F(CatalogTest, KeepsTheRunMarker) {
  const auto fresh = catalog_->run_marker();
  ASSERT_OK(fresh);
  EXPECT_FALSE(fresh->clean);
  EXPECT_EQ("", fresh->boot_id);
  ASSERT_OK(
      catalog_->set_run_marker({.clean = true, .boot_id = "boot", .mount_ids = "mo\0unt"}));
  reopen();
  const auto marker = catalog_->run_marker();
  ASSERT_OK(marker);
  EXPECT_TRUE(marker->clean);
  EXPECT_EQ("boot", marker->boot_id);
  EXPECT_EQ("mo\0unt", marker->mount_ids);
  put_raw(Table::kMeta, "run", "garbage");
  EXPECT_ERROR(EBADMSG, catalog_->run_marker());
}

TEST_F(CatalogTest, KeepsTheMountsOwnTime) {
  EXPECT_EQ(std::nullopt, *catalog_->clock());
  ClockRecord record{.now = 7, .monotonic = 8, .boot_id = "boot", .spans = {}};
  ASSERT_OK(catalog_->set_clock(record));
  EXPECT_EQ(record, *catalog_->clock());
  for (std::uint64_t i = 0; i < ClockRecord::kMostSpans; ++i)
    record.spans.push_back({.first = i, .ahead = -static_cast<std::int64_t>(i)});
  ASSERT_OK(catalog_->set_clock(record));
  reopen();
  EXPECT_EQ(record, *catalog_->clock());
  record.spans.push_back({});
  ASSERT_OK(catalog_->set_clock(record));
  EXPECT_ERROR(EBADMSG, catalog_->clock());
  put_raw(Table::kMeta, "clock", "garbage");
  EXPECT_ERROR(EBADMSG, catalog_->clock());
}

TEST_F(CatalogTest, KeepsWhatTheMachinesCrashHasLeftUntilItIsForgotten) {
  EXPECT_FALSE(*catalog_->machine_cut());
  ASSERT_OK(catalog_->set_machine_cut({.before = 7, .ended = 1'000'000'000}));
  reopen();
  const auto cut = catalog_->machine_cut();
  ASSERT_OK(cut);
  ASSERT_TRUE(*cut);
  EXPECT_EQ(7u, (*cut)->before);
  EXPECT_EQ(1'000'000'000, (*cut)->ended);
  put_raw(Table::kMeta, "cut", "garbage");
  EXPECT_ERROR(EBADMSG, catalog_->machine_cut());
  ASSERT_OK(catalog_->forget_machine_cut());
  EXPECT_FALSE(*catalog_->machine_cut());
}

TEST_F(CatalogTest, KeepsTheTableOfDevices) {
  const DeviceUuid first{1};
  const DeviceUuid second{2};
  EXPECT_TRUE(catalog_->devices()->empty());
  EXPECT_EQ(0u, *catalog_->add_device(first));
  EXPECT_EQ(1u, *catalog_->add_device(second));
  EXPECT_EQ(0u, *catalog_->add_device(first)) << "known already";
  reopen();
  EXPECT_EQ((std::vector<DeviceUuid>{first, second}), *catalog_->devices());
}

TEST_F(CatalogTest, HasAUuidOfItsOwn) {
  const auto uuid = catalog_->uuid();
  ASSERT_OK(uuid);
  reopen();
  EXPECT_EQ(*uuid, *catalog_->uuid());
  MemoryStore other;
  EXPECT_NE(*uuid, *(*Catalog::create(std::make_unique<Borrowed>(other)))->uuid());
}

TEST_F(CatalogTest, RefusesANewerDatabaseAndSaysWhatToDo) {
  put_raw(Table::kMeta, "format", std::string("\x63\0\0\0", 4));
  std::string problem;
  EXPECT_ERROR(EPROTONOSUPPORT, Catalog::create(std::make_unique<Borrowed>(store_), &problem));
  EXPECT_NE(std::string::npos, problem.find("format 99")) << problem;
  EXPECT_NE(std::string::npos, problem.find("newer")) << problem;
}

TEST_F(CatalogTest, UpgradesAnOlderDatabase) {
  put_raw(Table::kMeta, "format", std::string("\1\0\0\0", 4));
  reopen();
  EXPECT_EQ(std::string("\7\0\0\0", 4), **store_.get(Table::kMeta, "format"));
  EXPECT_EQ(std::vector<InodeNumber>{kRootInode}, *catalog_->list_unread(0, 9));
  EXPECT_TRUE(catalog_->is_told());
}

TEST_F(CatalogTest, FindsBlocksByNumberAndByHash) {
  const BlockRecord block{.inode = 5, .hash = "ab"};
  EXPECT_FALSE((*catalog_->find_block(7)).has_value());
  EXPECT_EQ(std::nullopt, *catalog_->next_prefix(""));
  commit([&](Edit& edit) {
    edit.put_block(7, block);
    edit.put_block(UINT64_MAX, block);
    for (const std::string_view hash : {"ab", "abc", "aa"}) {
      for (const std::string_view name : {"one", "two", "three"})
        edit.put_prefix(hash, 9, name);
    }
    edit.put_prefix("ab", 300, "one");
  });
  EXPECT_EQ(block, **catalog_->find_block(7));
  const std::vector<PrefixName> names = *catalog_->list_prefix("ab", std::nullopt, 9);
  ASSERT_EQ(4u, names.size());
  EXPECT_EQ((PrefixName{.hash = "ab", .parent = 9, .name = "one"}), names[0]);
  EXPECT_EQ((PrefixName{.hash = "ab", .parent = 300, .name = "one"}), names[3]);
  EXPECT_EQ(std::vector<PrefixName>(names.begin() + 2, names.begin() + 3),
            *catalog_->list_prefix("ab", names[1], 1));
  EXPECT_EQ("aa", **catalog_->next_prefix(""));
  EXPECT_EQ("ab", **catalog_->next_prefix("aa"));
  EXPECT_EQ("abc", **catalog_->next_prefix("ab"));
  EXPECT_EQ(std::nullopt, *catalog_->next_prefix("abc"));
  const auto in_300 = [](InodeNumber directory) -> Result<bool> { return directory == 300; };
  EXPECT_EQ("ab", **catalog_->next_prefix("", in_300));
  EXPECT_EQ(std::nullopt, *catalog_->next_prefix("ab", in_300));
  EXPECT_ERROR(EACCES, catalog_->next_prefix("", [](InodeNumber) -> Result<bool> {
    return fail(EACCES, "asked");
  }));
  const auto numbers = [&](std::optional<std::uint64_t> after) {
    std::vector<std::uint64_t> found;
    EXPECT_OK(catalog_->each_block(
        after,
        [&](std::uint64_t number, const BlockRecord&) {
          found.push_back(number);
          return true;
        },
        [](const std::string&) { FAIL(); }));
    return found;
  };
  EXPECT_EQ((std::vector<std::uint64_t>{7, UINT64_MAX}), numbers(std::nullopt));
  EXPECT_EQ((std::vector<std::uint64_t>{UINT64_MAX}), numbers(7));
  EXPECT_TRUE(numbers(UINT64_MAX).empty());
  commit([&](Edit& edit) {
    edit.remove_block(7);
    edit.remove_prefix("ab", 300, "one");
  });
  EXPECT_FALSE((*catalog_->find_block(7)).has_value());
  EXPECT_EQ(3u, catalog_->list_prefix("ab", std::nullopt, 9)->size());
}

TEST_F(CatalogTest, RemembersWhatIsToBeRead) {
  EXPECT_FALSE(catalog_->is_told());
  commit([](Edit& edit) {
    edit.put_unread(9);
    edit.put_unread(300);
    edit.put_told();
  });
  EXPECT_TRUE(catalog_->is_told());
  EXPECT_FALSE(catalog_->is_told_policy());
  commit([](Edit& edit) { edit.put_told_policy(); });
  EXPECT_TRUE(catalog_->is_told_policy());
  reopen();
  EXPECT_TRUE(catalog_->is_told());
  EXPECT_TRUE(catalog_->is_told_policy());
  EXPECT_EQ((std::vector<InodeNumber>{9, 300}), *catalog_->list_unread(0, 9));
  commit([](Edit& edit) { edit.remove_unread(9); });
  EXPECT_EQ((std::vector<InodeNumber>{300}), *catalog_->list_unread(0, 9));
}

TEST_F(CatalogTest, RefusesAnotherProgramsDatabase) {
  MemoryStore other;
  WriteBatch batch;
  batch.put(Table::kInodes, "something", "else");
  ASSERT_OK(other.write(batch));
  std::string problem;
  EXPECT_ERROR(EPROTONOSUPPORT, Catalog::create(std::make_unique<Borrowed>(other), &problem));
  EXPECT_FALSE(problem.empty());
}

TEST_F(CatalogTest, RefusesDamagedFactsOfItsOwn) {
  std::string problem;
  // The second says that more numbers have been given than any database gives.
  for (const std::string ids : {"?", "\1\2\3\4\5\6\7\177"}) {
    put_raw(Table::kMeta, "ids", ids);
    problem.clear();
    EXPECT_ERROR(EBADMSG, Catalog::create(std::make_unique<Borrowed>(store_), &problem));
    EXPECT_NE(std::string::npos, problem.find("damaged")) << problem;
  }
  put_raw(Table::kMeta, "format", "?");
  problem.clear();
  EXPECT_ERROR(EBADMSG, Catalog::create(std::make_unique<Borrowed>(store_), &problem));
  EXPECT_NE(std::string::npos, problem.find("damaged")) << problem;
}

TEST_F(CatalogTest, PassesTheErrorsOfItsStoreOn) {
  EXPECT_ERROR(EIO, Catalog::create(std::make_unique<Broken>(EIO)));
  EXPECT_ERROR(ENOSPC, Catalog::create(std::make_unique<Broken>(ENOSPC)));
}

TEST_F(CatalogTest, AnEmptyEditIsSuccess) {
  EXPECT_OK(catalog_->commit(Edit{}));
  EXPECT_OK(catalog_->sync());
  EXPECT_TRUE(Edit{}.empty());
}

// Removing many entries leaves marks in the database: what asks for the beginning of the list
// must not pay for them.
TEST(CatalogOnRocksdb, AnEmptiedDirectoryIsCheckedWithoutSteppingOverItsPast) {
  const testing::TempDir dir;
  auto store = RocksdbStore::open(dir / "db", {}, true);
  ASSERT_OK(store);
  const auto catalog = std::move(*Catalog::create(std::move(*store)));
  constexpr std::uint64_t kNames = 20'000;
  for (std::uint64_t i = 0; i < kNames; ++i) {
    Edit edit;
    edit.put_dentry(1, std::to_string(i), {.inode = 5, .type = DT_REG, .cookie = 10 + i});
    ASSERT_OK(catalog->commit(std::move(edit)));
  }
  for (std::uint64_t i = 0; i < kNames; ++i) {
    Edit edit;
    edit.remove_dentry(1, std::to_string(i), {.inode = 5, .type = DT_REG, .cookie = 10 + i});
    ASSERT_OK(catalog->commit(std::move(edit)));
    if (i % 100 == 0) {
      ASSERT_EQ(i + 1 == kNames, *catalog->directory_empty(1));
    }
  }
  ASSERT_TRUE(*catalog->directory_empty(1));
  // Without the floor each of these steps over 20,000 removed entries, in milliseconds: 20 s
  // and more in all.
  const std::int64_t began = monotonic_now();
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(*catalog->directory_empty(1));
  EXPECT_LT(monotonic_now() - began, 5 * kNanosPerSecond);

  Edit edit;
  edit.put_dentry(1, "again", {.inode = 5, .type = DT_REG, .cookie = 5});
  ASSERT_OK(catalog->commit(std::move(edit)));
  EXPECT_FALSE(*catalog->directory_empty(1));
  EXPECT_EQ(1u, catalog->list_directory(1, 0, 10)->size());
}

}  // namespace
}  // namespace kvcachefs
