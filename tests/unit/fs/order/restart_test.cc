// What a restart keeps of the learned order, and what is written down for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/fakes/seed.h"
#include "tests/unit/fs/order/scripted_calls.h"

namespace kvcachefs::order {
namespace {

using testing::kSecond;
using testing::ScriptedCalls;
using Names = std::vector<std::uint64_t>;

std::map<std::uint64_t, Snapshot> take_all(Learner& learner) {
  std::map<std::uint64_t, Snapshot> written;
  for (bool more = true; more;) {
    ChangedBatch batch = learner.take_changed(100);
    for (const Changed& changed : batch.changed) written[changed.name] = changed.snapshot;
    more = batch.more;
  }
  return written;
}

TEST(Restart, KeepsParentsAndTheOrderOfEviction) {
  ScriptedCalls before;
  before.first_request({1, 2, 3});
  before.wait(61 * kSecond);
  before.first_request({11, 12, 13});
  before.wait(61 * kSecond);
  before.next_request({1, 2, 3});
  before.learner.set_parent(13, 11, before.now);
  const auto written = take_all(before.learner);
  ASSERT_EQ(6u, written.size());

  ScriptedCalls after;
  Names names;
  for (const auto& [name, snapshot] : written) names.push_back(name);
  std::mt19937_64 random(testing::test_seed());
  std::shuffle(names.begin(), names.end(), random);
  for (const std::uint64_t name : names)
    after.learner.restore(name, written.at(name), before.now);
  after.learner.restored();

  EXPECT_EQ(before.victims(), after.victims());
  EXPECT_EQ(1u, after.parent(2));
  EXPECT_TRUE(after.firm(2));
  EXPECT_EQ(11u, after.parent(13));
  for (int i = 0; i < 5; ++i) after.next_request({11, 12, 13});
  EXPECT_EQ(11u, after.parent(13)) << "a hint is still one";
  EXPECT_EQ(6u, after.learner.sizes().stored);
}

TEST(Restart, WritesOnlyLinksThatWereSeenAgain) {
  ScriptedCalls calls;
  calls.first_request({1, 2});
  ASSERT_TRUE(calls.learner.parent(2));
  EXPECT_FALSE(calls.learner.snapshot(2)->parent);
  calls.next_request({1, 2});
  EXPECT_EQ(1u, calls.learner.snapshot(2)->parent);
}

TEST(Restart, ANameIsWrittenOnceAMinuteWhateverHappens) {
  ScriptedCalls calls;
  calls.now = 6000 * kSecond;
  calls.first_request({1, 2});
  calls.next_request({1, 2});
  EXPECT_EQ(2u, calls.learner.take_changed(10).changed.size());
  for (int i = 0; i < 10; ++i) calls.next_request({1, 2});
  EXPECT_TRUE(calls.learner.take_changed(10).changed.empty());
  calls.wait(60 * kSecond);
  calls.next_request({1, 2});
  EXPECT_EQ(2u, calls.learner.take_changed(10).changed.size());
}

TEST(Restart, AForgottenNameIsNotWritten) {
  ScriptedCalls calls;
  calls.first_request({1, 2});
  calls.learner.forget(1);
  const auto batch = calls.learner.take_changed(10);
  ASSERT_EQ(1u, batch.changed.size());
  EXPECT_EQ(2u, batch.changed[0].name);
}

TEST(Restart, NothingIsLostWhenMoreChangesThanTheQueueHolds) {
  constexpr std::uint64_t kNames = 200'000;
  ScriptedCalls calls;
  for (std::uint64_t name = 1; name <= kNames; ++name) calls.learner.published(name, calls.now);
  EXPECT_EQ(kNames, take_all(calls.learner).size());
  EXPECT_FALSE(calls.learner.take_changed(10).more);
}

TEST(Restart, CallsThatCameFirstStay) {
  ScriptedCalls before;
  before.first_request({1, 2});
  before.next_request({1, 2});
  const auto written = take_all(before.learner);

  ScriptedCalls after;
  after.wait(3600 * kSecond);
  after.hits({2});
  const auto seen = after.key(2);
  for (const auto& [name, snapshot] : written)
    after.learner.restore(name, snapshot, before.now);
  after.learner.restored();
  EXPECT_EQ(seen.stamp, after.key(2).stamp);
  EXPECT_EQ(written.at(2).birth, after.key(2).birth);
  EXPECT_EQ(1u, after.parent(2));
  EXPECT_EQ((Names{1, 2}), after.victims()) << "1 was not looked up since";
}

TEST(Restart, ANewNameIsBornAfterAllOldOnes) {
  ScriptedCalls before;
  for (std::uint64_t name = 1; name <= 1000; ++name) before.learner.published(name, before.now);
  const auto written = take_all(before.learner);

  ScriptedCalls after;
  after.wait(10 * kSecond);
  after.hits({5000});
  for (const auto& [name, snapshot] : written)
    after.learner.restore(name, snapshot, before.now);
  after.learner.restored();
  for (const auto& [name, snapshot] : written) EXPECT_LT(snapshot.birth, after.key(5000).birth);
}

TEST(Restart, AStampOfTheFutureCountsAsNow) {
  constexpr std::int64_t kYear = 365 * 86'400 * kSecond;
  ScriptedCalls before;
  before.now = kYear;  // The clock was ahead.
  before.first_request({1, 2});
  const auto written = take_all(before.learner);

  ScriptedCalls after;
  for (const auto& [name, snapshot] : written) after.learner.restore(name, snapshot, after.now);
  after.learner.restored();
  const auto rewritten = take_all(after.learner);
  after.wait(10 * kSecond);
  after.first_request({11});
  EXPECT_EQ((Names{2, 1, 11}), after.victims());
  ASSERT_EQ(2u, rewritten.size()) << "else they would be new again at each start";
  EXPECT_LT(rewritten.at(1).stamp, written.at(1).stamp);
}

TEST(Restart, ParentsThatNeverComeBackAreDropped) {
  constexpr std::uint64_t kNames = 2 * Learner::kMaxWaiting;
  Learner learner;
  for (std::uint64_t name = 1; name <= kNames; ++name)
    learner.restore(
        name, Snapshot{.parent = name + kNames, .hinted = false, .birth = name, .stamp = 1},
        kSecond);
  EXPECT_EQ(2 * kNames, learner.sizes().names);
  learner.restored();
  EXPECT_LE(learner.sizes().names, kNames + Learner::kMaxWaiting);
  EXPECT_EQ(kNames, learner.sizes().stored);
}

}  // namespace
}  // namespace kvcachefs::order
