// What the learner costs in memory: a bound for each name. bench/learner.sh measures its time.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "fs/order/learner.h"
#include "fs/order/name_table.h"
#include "tests/unit/fs/order/scripted_calls.h"

namespace kvcachefs::order {
namespace {

using testing::kMicrosecond;
using testing::kMillisecond;
using testing::kSecond;

bool full() {
  const char* value = std::getenv("KVCACHEFS_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

// Chains of 100 names, looked up and stored in order, as a runtime does.
constexpr std::uint64_t kChain = 100;

template <typename Each>
void for_each_chain(std::uint64_t names, std::int64_t& now, Each each) {
  for (std::uint64_t first = 1; first <= names; first += kChain) {
    for (std::uint64_t name = first; name < first + kChain; ++name) {
      now += 20 * kMicrosecond;
      each(name);
    }
    now += 1100 * kMillisecond;  // or the next chain would look like this one's continuation
  }
}

TEST(LearnerCost, AMillionNamesTakeAtMostSixtyFourBytesEach) {
  constexpr std::uint64_t kNames = 1'000'000;
  const Caller caller{.tid = 11, .process = 10};
  const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  Learner learner;
  std::int64_t now = kSecond;
  for_each_chain(kNames, now, [&](std::uint64_t name) {
    learner.probe(name, caller, Lookup::kMiss, now);
    learner.store_start(name, caller, now);
    learner.published(name, now);
  });
  learner.take_changed(kNames);
  for_each_chain(kNames, now,
                 [&](std::uint64_t name) { learner.probe(name, caller, Lookup::kHit, now); });
  const LearnerSizes sizes = learner.sizes();
  ASSERT_EQ(kNames, sizes.stored);
  ASSERT_EQ(kNames, sizes.names);
  const std::size_t all = mallinfo2().uordblks + mallinfo2().hblkhd - before;
  const double each = static_cast<double>(sizes.bytes) / kNames;
  std::printf("%.1f bytes a name, %.1f with all that is fixed\n", each,
              static_cast<double>(all) / kNames);
  EXPECT_LE(each, 64.0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(static_cast<double>(all), 64.0 * kNames + (2 << 20));
#endif
}

// The table grows by a fourth at a time: the bound holds at every size, not only at a good one.
TEST(LearnerCost, TheBoundHoldsAtEverySize) {
  NameTable names;
  double most = 0;
  for (std::uint64_t name = 1; name <= 1'500'000; ++name) {
    names.insert(name);
    if (name >= 200'000 && name % 1000 == 0) {
      most =
          std::max(most, static_cast<double>(names.memory_bytes()) / static_cast<double>(name));
    }
  }
  std::printf("at most %.1f bytes a name\n", most);
  EXPECT_LE(most, 63.5);
}

TEST(LearnerCost, CreatingAndForgettingDoesNotGrow) {
  const std::uint64_t rounds = full() ? 10'000'000 : 1'500'000;
  const Caller caller{.tid = 11, .process = 10};
  Learner learner;
  std::int64_t now = kSecond;
  std::size_t bytes = 0;
  for (std::uint64_t name = 1; name <= rounds; ++name) {
    now += 50 * kMicrosecond;
    learner.store_start(name, caller, now);
    learner.published(name, now);
    learner.forget(name);
    if (name == rounds / 2) bytes = learner.sizes().bytes;
  }
  // By chance, a segment of the hash table may still grow a little.
  EXPECT_LE(learner.sizes().bytes, bytes + bytes / 20);
  EXPECT_LE(learner.sizes().names, Learner::kMaxWaiting);
  EXPECT_EQ(0u, learner.sizes().stored);
}

}  // namespace
}  // namespace kvcachefs::order
