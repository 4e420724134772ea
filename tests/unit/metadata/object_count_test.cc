#include "metadata/object_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

using ObjectPlaces = std::vector<ObjectPlace>;

TEST(ObjectCount, IsNotKnownBeforeTheWalkIsAtItsEnd) {
  ObjectCount count;
  count.came(ObjectPlaces{{.id = 1, .device = 0}});  // before the begin: the walk meets it
  count.begin(10);
  EXPECT_EQ(std::nullopt, count.on(0));
  count.passed(5, ObjectPlaces{{.id = 1, .device = 0}, {.id = 5, .device = 1}});
  EXPECT_EQ(std::nullopt, count.on(0));
  count.passed_all();
  EXPECT_EQ(1u, count.on(0));
  EXPECT_EQ(1u, count.on(1));
  EXPECT_EQ(0u, count.on(7));
}

TEST(ObjectCount, AnObjectMadeMeanwhileCountsOnceThoughTheWalkMeetsIt) {
  ObjectCount count;
  count.begin(10);
  count.came(ObjectPlaces{{.id = 12, .device = 0}});
  count.passed(12, ObjectPlaces{{.id = 3, .device = 0}, {.id = 12, .device = 0}});
  count.passed_all();
  EXPECT_EQ(2u, count.on(0));
}

TEST(ObjectCount, ARemovalAheadOfTheWalkIsNeverCounted) {
  ObjectCount count;
  count.begin(10);
  count.leaving(ObjectPlaces{{.id = 3, .device = 0}});
  // Its record was read just before the commit.
  count.passed(4, ObjectPlaces{{.id = 3, .device = 0}, {.id = 4, .device = 0}});
  // This one's commit came before the reading.
  count.leaving(ObjectPlaces{{.id = 7, .device = 0}});
  count.passed(8, ObjectPlaces{{.id = 8, .device = 0}});
  count.passed_all();
  EXPECT_EQ(2u, count.on(0));
  count.leaving(ObjectPlaces{{.id = 4, .device = 0}});
  EXPECT_EQ(1u, count.on(0));
}

TEST(ObjectCount, ARemovalThatFailsIsTakenBack) {
  ObjectCount count;
  count.begin(10);
  const ObjectPlaces early{{.id = 3, .device = 0}};
  const ObjectPlaces late{{.id = 8, .device = 0}};
  count.leaving(early);
  count.leaving(late);
  count.passed(5, early);
  count.stayed(early);  // the walk has come by
  count.stayed(late);   // it has not
  count.passed(9, late);
  count.passed_all();
  EXPECT_EQ(2u, count.on(0));
}

// All orders of a walk in batches, commits that come between its reading and its counting, and
// commits that fail, against a set of what is there.
TEST(ObjectCount, AgreesWithATableThatChangesUnderTheWalk) {
  const auto seed = testing::test_seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::map<ObjectId, std::uint32_t> table;
    ObjectId next = 1;
    for (int i = 0; i < 60; ++i) table[next++] = static_cast<std::uint32_t>(random() % 3);
    ObjectCount count;
    count.begin(next);
    const auto change = [&] {
      if (random() % 2 == 0) {
        const ObjectPlaces made{
            {.id = next++, .device = static_cast<std::uint32_t>(random() % 3)}};
        table[made[0].id] = made[0].device;
        count.came(made);
      } else if (!table.empty()) {
        const auto at = std::next(table.begin(), static_cast<long>(random() % table.size()));
        const ObjectPlaces gone{{.id = at->first, .device = at->second}};
        count.leaving(gone);
        if (random() % 4 == 0) {
          count.stayed(gone);
        } else {
          table.erase(at);
        }
      }
    };
    for (ObjectId last = 0;;) {
      ObjectPlaces batch;
      for (auto at = table.upper_bound(last); at != table.end() && batch.size() < 7; ++at)
        batch.push_back({.id = at->first, .device = at->second});
      for (auto changes = random() % 4; changes > 0; --changes) change();
      if (batch.empty()) break;
      last = batch.back().id;
      count.passed(last, batch);
      change();
    }
    count.passed_all();
    for (int i = 0; i < 20; ++i) change();
    for (std::uint32_t device = 0; device < 3; ++device) {
      const auto there = std::count_if(table.begin(), table.end(),
                                       [&](const auto& row) { return row.second == device; });
      ASSERT_EQ(static_cast<std::uint64_t>(there), count.on(device)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kvcachefs
