#include "fs/budget/object_marks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

TEST(ObjectMarks, RememberWhatIsUnusualAndNothingElse) {
  ObjectMarks marks;
  EXPECT_EQ(ObjectMark{}, marks.of(7));
  marks.set(7, {});
  EXPECT_EQ(0U, marks.pages());
  marks.set(7, {.kept = true, .tenant = 63});
  marks.set(8, {.kept = false, .tenant = 1});
  EXPECT_EQ((ObjectMark{.kept = true, .tenant = 63}), marks.of(7));
  EXPECT_EQ(1U, marks.pages());
  EXPECT_EQ((ObjectMark{.kept = true, .tenant = 63}), marks.take(7));
  EXPECT_EQ(ObjectMark{}, marks.take(7));
  EXPECT_EQ((ObjectMark{.kept = false, .tenant = 1}), marks.of(8));
  marks.set(8, {});
  EXPECT_EQ(0U, marks.pages());
}

TEST(ObjectMarks, AreAsAMapWouldHaveThem) {
  std::mt19937_64 random(testing::test_seed());
  ObjectMarks marks;
  std::map<ObjectId, ObjectMark> expected;
  for (int i = 0; i < 20'000; ++i) {
    const ObjectId object = random() % 1000 + (random() % 4) * 1'000'000'000'000;
    const ObjectMark mark{.kept = random() % 2 == 0,
                          .tenant = static_cast<TenantSlot>(random() % order::kGroups)};
    if (random() % 3 == 0) {
      EXPECT_EQ(expected[object], marks.take(object));
      expected.erase(object);
    } else {
      marks.set(object, mark);
      expected[object] = mark;
    }
  }
  for (const auto& [object, mark] : expected) EXPECT_EQ(mark, marks.of(object));
  for (const auto& [object, mark] : expected) marks.set(object, {});
  EXPECT_EQ(0U, marks.pages());
}

}  // namespace
}  // namespace kvcachefs
