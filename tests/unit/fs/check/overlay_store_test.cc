#include "fs/check/overlay_store.h"

#include <map>
#include <random>

#include "metadata/memory_store.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/seed.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using Rows = std::map<std::string, std::string>;

Rows rows_of(Store& store, std::string_view prefix = "", std::string_view from = "") {
  Rows rows;
  must(store.scan(Table::kInodes, prefix, from,
                  [&](std::string_view key, std::string_view value) {
                    EXPECT_TRUE(rows.empty() || rows.rbegin()->first < key);
                    rows.emplace(key, value);
                    return true;
                  }));
  return rows;
}

void put(Store& store, const std::string& key, const std::string& value) {
  WriteBatch batch;
  batch.put(Table::kInodes, key, value);
  must(store.write(batch));
}
void remove(Store& store, const std::string& key) {
  WriteBatch batch;
  batch.remove(Table::kInodes, key);
  must(store.write(batch));
}

class OverlayStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<Store> below_ = std::make_shared<MemoryStore>();
  std::unique_ptr<OverlayStore> make() {
    return std::make_unique<OverlayStore>(
        std::make_unique<testing::RunStore>(below_, std::make_shared<testing::Faults>()));
  }
};

TEST_F(OverlayStoreTest, ShowsItsWritesAndLeavesTheOnesBelow) {
  put(*below_, "a", "1");
  put(*below_, "b", "2");
  const auto overlay = make();
  put(*overlay, "b", "3");
  put(*overlay, "c", "4");
  remove(*overlay, "a");
  EXPECT_EQ((Rows{{"b", "3"}, {"c", "4"}}), rows_of(*overlay));
  EXPECT_EQ((Rows{{"a", "1"}, {"b", "2"}}), rows_of(*below_));
  EXPECT_FALSE(must(overlay->get(Table::kInodes, "a")));
  EXPECT_EQ("3", must(overlay->get(Table::kInodes, "b")));
}

TEST_F(OverlayStoreTest, EqualsAStoreWithTheSameWrites) {
  std::mt19937_64 random(testing::test_seed());
  const auto key = [&] {
    return std::string(1, static_cast<char>('a' + random() % 3)) +
           std::to_string(random() % 40);
  };
  MemoryStore direct;
  for (int i = 0; i < 60; ++i) {
    const std::string at = key();
    put(*below_, at, "below");
    put(direct, at, "below");
  }
  const auto overlay = make();
  for (int round = 0; round < 300; ++round) {
    const std::string at = key();
    if (random() % 2 == 0) {
      put(*overlay, at, std::to_string(round));
      put(direct, at, std::to_string(round));
    } else {
      remove(*overlay, at);
      remove(direct, at);
    }
    const std::string from = key();
    EXPECT_EQ(rows_of(direct), rows_of(*overlay));
    EXPECT_EQ(rows_of(direct, "b"), rows_of(*overlay, "b"));
    EXPECT_EQ(rows_of(direct, from.substr(0, 1), from),
              rows_of(*overlay, from.substr(0, 1), from));
  }
}

TEST_F(OverlayStoreTest, MayBeWrittenWhileItIsScanned) {
  for (char c = 'a'; c < 'g'; ++c) put(*below_, std::string(1, c), "x");
  const auto overlay = make();
  std::string seen;
  must(overlay->scan(Table::kInodes, "", "", [&](std::string_view key, std::string_view) {
    seen += key;
    remove(*overlay, std::string(key));
    if (key == "b") remove(*overlay, "c");
    return key != "e";
  }));
  EXPECT_EQ("abde", seen);
  EXPECT_EQ((Rows{{"f", "x"}}), rows_of(*overlay));
}

}  // namespace
}  // namespace kvcachefs
