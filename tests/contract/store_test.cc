// The contract of Store, for every implementation.
#include "metadata/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "metadata/memory_store.h"
#include "metadata/rocksdb_store.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/seed.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

struct StoreImplementation {
  std::string name;
  std::function<std::unique_ptr<Store>(const std::string& directory)> make;
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

class StoreContract : public ::testing::TestWithParam<StoreImplementation> {
 protected:
  StoreContract() : store_(GetParam().make(dir_ / "db")) {}
  void SetUp() override { ASSERT_NE(nullptr, store_); }

  void put(Table table, std::string key, std::string value) {
    WriteBatch batch;
    batch.put(table, std::move(key), std::move(value));
    ASSERT_OK(store_->write(batch));
  }
  Pairs scan(Table table, std::string_view prefix, std::string_view from,
             std::size_t limit = 1000) {
    Pairs found;
    EXPECT_OK(
        store_->scan(table, prefix, from, [&](std::string_view key, std::string_view value) {
          found.emplace_back(key, value);
          return found.size() < limit;
        }));
    return found;
  }

  const testing::TempDir dir_;
  const std::unique_ptr<Store> store_;
};

TEST_P(StoreContract, AnAbsentKeyIsNoError) {
  const auto value = store_->get(Table::kInodes, "absent");
  ASSERT_OK(value);
  EXPECT_FALSE(value->has_value());
}

TEST_P(StoreContract, KeepsBytesExactly) {
  const std::string key("\0k\xff\n", 4);
  const std::string value("\0v\xff", 3);
  put(Table::kDentries, key, value);
  put(Table::kDentries, "empty", "");
  EXPECT_EQ(value, **store_->get(Table::kDentries, key));
  EXPECT_EQ("", **store_->get(Table::kDentries, "empty"));
  const std::string large(3 << 20, 'x');
  put(Table::kDentries, "large", large);
  EXPECT_EQ(large, **store_->get(Table::kDentries, "large"));
}

TEST_P(StoreContract, TablesAreApart) {
  for (std::size_t i = 0; i < kTableCount; ++i) {
    put(static_cast<Table>(i), "key", std::to_string(i));
  }
  for (std::size_t i = 0; i < kTableCount; ++i) {
    EXPECT_EQ(std::to_string(i), **store_->get(static_cast<Table>(i), "key"));
    EXPECT_EQ(1u, scan(static_cast<Table>(i), "", "").size());
  }
}

TEST_P(StoreContract, ABatchIsAppliedInOrder) {
  WriteBatch batch;
  batch.put(Table::kMeta, "a", "1");
  batch.put(Table::kMeta, "a", "2");
  batch.put(Table::kMeta, "b", "1");
  batch.remove(Table::kMeta, "b");
  batch.remove(Table::kMeta, "c");
  batch.put(Table::kMeta, "c", "3");
  ASSERT_OK(store_->write(batch));
  EXPECT_EQ((Pairs{{"a", "2"}, {"c", "3"}}), scan(Table::kMeta, "", ""));
}

TEST_P(StoreContract, AnEmptyBatchIsSuccess) { EXPECT_OK(store_->write(WriteBatch{})); }

TEST_P(StoreContract, ScansAPrefixInOrder) {
  for (const char* key : {"b", "ab", "aa", "ac", "a", "ba"}) put(Table::kListings, key, key);
  EXPECT_EQ((Pairs{{"a", "a"}, {"aa", "aa"}, {"ab", "ab"}, {"ac", "ac"}}),
            scan(Table::kListings, "a", ""));
  EXPECT_EQ((Pairs{{"ab", "ab"}, {"ac", "ac"}}), scan(Table::kListings, "a", "ab"));
  EXPECT_EQ((Pairs{{"ab", "ab"}, {"ac", "ac"}}), scan(Table::kListings, "a", "aaa"));
  EXPECT_EQ((Pairs{}), scan(Table::kListings, "a", "b"));
  EXPECT_EQ((Pairs{}), scan(Table::kListings, "c", ""));
  EXPECT_EQ(6u, scan(Table::kListings, "", "").size());
}

TEST_P(StoreContract, KeysOrderAsUnsignedBytes) {
  const std::string last_prefix("\xff\xff");
  put(Table::kListings, "\x7f", "");
  put(Table::kListings, "\x80", "");
  put(Table::kListings, last_prefix, "");
  put(Table::kListings, last_prefix + '\0', "");
  put(Table::kListings, last_prefix + "\xff", "");
  const Pairs all = scan(Table::kListings, "", "");
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::lexicographical_compare(
        a.first.begin(), a.first.end(), b.first.begin(), b.first.end(), [](char x, char y) {
          return static_cast<unsigned char>(x) < static_cast<unsigned char>(y);
        });
  }));
  EXPECT_EQ(3u, scan(Table::kListings, last_prefix, "").size())
      << "a prefix that has no successor";
  EXPECT_EQ(3u, scan(Table::kListings, "\xff", "").size());
}

TEST_P(StoreContract, AScanEndsWhenAsked) {
  for (int i = 0; i < 10; ++i) put(Table::kListings, "k" + std::to_string(i), "");
  EXPECT_EQ(3u, scan(Table::kListings, "k", "", 3).size());
}

TEST_P(StoreContract, AVisitMayCallBack) {
  put(Table::kListings, "a", "1");
  put(Table::kListings, "b", "2");
  int visits = 0;
  ASSERT_OK(
      store_->scan(Table::kListings, "", "", [&](std::string_view key, std::string_view value) {
        ++visits;
        const std::string key_copy(key);
        EXPECT_EQ(std::string(value), **store_->get(Table::kListings, key_copy));
        WriteBatch batch;
        batch.remove(Table::kListings, key_copy);
        EXPECT_OK(store_->write(batch));
        return true;
      }));
  EXPECT_EQ(2, visits);
  EXPECT_TRUE(scan(Table::kListings, "", "").empty());
}

TEST_P(StoreContract, BehavesAsAnOrderedMap) {
  std::mt19937_64 random(testing::test_seed());
  std::map<std::string, std::string> model;
  for (int round = 0; round < 3000; ++round) {
    WriteBatch batch;
    for (std::uint64_t i = 0; i < 1 + random() % 6; ++i) {
      std::string key = std::to_string(random() % 300);
      if (random() % 3 == 0) {
        model.erase(key);
        batch.remove(Table::kXattrs, std::move(key));
      } else {
        std::string value = std::to_string(random());
        model[key] = value;
        batch.put(Table::kXattrs, std::move(key), std::move(value));
      }
    }
    ASSERT_OK(store_->write(batch));
    if (round % 100 == 0) {
      const std::string prefix = std::to_string(random() % 10);
      const std::string from = std::to_string(random() % 300);
      Pairs expected;
      for (const auto& [key, value] : model) {
        if (key.starts_with(prefix) && key >= from) expected.emplace_back(key, value);
      }
      ASSERT_EQ(expected, scan(Table::kXattrs, prefix, from));
    }
  }
}

TEST_P(StoreContract, ABatchIsSeenWholeOrNotAtAll) {
  std::atomic<bool> end{false};
  put(Table::kMeta, "x/a", "0");
  put(Table::kMeta, "x/b", "0");
  std::thread reader([&] {
    int checked = 0;
    while (!end || checked < 10) {
      // The second value is read after the first: it may be newer, never older.
      const auto a = store_->get(Table::kMeta, "x/a");
      const auto b = store_->get(Table::kMeta, "x/b");
      EXPECT_LE(std::stoi(**a), std::stoi(**b));
      ++checked;
    }
  });
  for (int i = 1; i <= 2000; ++i) {
    WriteBatch batch;
    batch.put(Table::kMeta, "x/a", std::to_string(i));
    batch.put(Table::kMeta, "x/b", std::to_string(i));
    ASSERT_OK(store_->write(batch));
  }
  end = true;
  reader.join();
}

TEST_P(StoreContract, ManyThreadsMayWriteAndSync) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([this, thread] {
      for (int i = 0; i < 20; ++i) {
        WriteBatch batch;
        batch.put(Table::kMeta, std::to_string(thread * 100 + i), "");
        EXPECT_OK(store_->write(batch));
        EXPECT_OK(store_->sync());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(160u, scan(Table::kMeta, "", "").size());
  EXPECT_GT(store_->memory_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, StoreContract,
    ::testing::Values(StoreImplementation{"MemoryStore",
                                          [](const std::string&) -> std::unique_ptr<Store> {
                                            return std::make_unique<MemoryStore>();
                                          }},
                      StoreImplementation{
                          "RocksdbStore",
                          [](const std::string& directory) -> std::unique_ptr<Store> {
                            auto store = RocksdbStore::open(directory, {}, true);
                            EXPECT_OK(store);
                            return store.ok() ? std::move(*store) : nullptr;
                          }}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace kvcachefs
