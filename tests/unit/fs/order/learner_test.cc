// What the learner makes of calls: stamps, births, links, and what follows from them.
#include "fs/order/learner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "tests/unit/fs/order/scripted_calls.h"

namespace kvcachefs::order {
namespace {

using testing::kMicrosecond;
using testing::kMillisecond;
using testing::kSecond;
using testing::ScriptedCalls;
using Names = std::vector<std::uint64_t>;

// Each name follows the one before it.
void tell_order(ScriptedCalls& calls, const Names& names) {
  for (std::size_t i = 1; i < names.size(); ++i)
    calls.learner.set_parent(names[i], names[i - 1], calls.now);
}

TEST(Learner, KnowsNothingOfANameItWasNotToldOf) {
  ScriptedCalls calls;
  EXPECT_FALSE(calls.learner.eviction_key(1));
  EXPECT_FALSE(calls.learner.parent(1));
  EXPECT_FALSE(calls.learner.snapshot(1));
  EXPECT_TRUE(calls.learner.is_tip(1));
  EXPECT_TRUE(calls.learner.children(1).empty());
  EXPECT_TRUE(calls.learner.next_likely(1, 64).empty());
  EXPECT_TRUE(calls.victims().empty());
  calls.learner.forget(1);
  EXPECT_EQ(0u, calls.learner.sizes().names);
}

TEST(Learner, ANameIsStoredFromItsPublicationUntilItIsForgotten) {
  ScriptedCalls calls;
  calls.misses({1});
  EXPECT_FALSE(calls.learner.eviction_key(1));
  calls.learner.store_start(1, calls.engine, calls.now);
  EXPECT_FALSE(calls.learner.eviction_key(1));
  calls.learner.published(1, calls.now);
  EXPECT_TRUE(calls.learner.eviction_key(1));
  calls.learner.forget(1);
  EXPECT_FALSE(calls.learner.eviction_key(1));
  EXPECT_TRUE(calls.victims().empty());
}

// A missing directory stands for its first block until that is stored.
TEST(Learner, WhatWasLookedUpUnderAnotherNameIsKnownOfTheRightOne) {
  ScriptedCalls calls;
  calls.misses({101, 102, 103});
  calls.wait(200 * kMillisecond);
  for (const std::uint64_t name : {3u, 1u, 2u}) {
    calls.learner.rename(100 + name, name);
    calls.store({name});
  }
  EXPECT_EQ(1u, calls.parent(2));
  EXPECT_EQ(2u, calls.parent(3));
  EXPECT_EQ(calls.key(1).stamp, calls.key(3).stamp) << "that of the lookups";
  EXPECT_EQ((Names{3, 2, 1}), calls.victims());
  EXPECT_EQ(3u, calls.learner.sizes().names);
  // All heads are stored: a second later a store is of its own time.
  calls.wait(2 * kSecond);
  calls.store({4});
  EXPECT_GT(calls.key(4).stamp, calls.key(3).stamp);
}

TEST(Learner, WhatIsKnownIsNotReplacedByAnotherName) {
  ScriptedCalls calls;
  calls.first_request({1, 2});
  calls.misses({101});
  const EvictionKey before = calls.key(1);
  calls.learner.rename(101, 1);  // known
  calls.learner.rename(2, 7);    // stored
  calls.learner.rename(55, 8);   // never seen
  EXPECT_EQ(before, calls.key(1));
  EXPECT_TRUE(calls.learner.eviction_key(2));
  EXPECT_FALSE(calls.learner.eviction_key(7));
  calls.store({7, 8});
  EXPECT_EQ(5u, calls.learner.sizes().names);
}

TEST(Learner, AHitOrAnOpenShowsThatANameIsStored) {
  ScriptedCalls calls;
  calls.hits({1});
  calls.learner.load(2, calls.engine, calls.now);
  EXPECT_TRUE(calls.learner.eviction_key(1));
  EXPECT_TRUE(calls.learner.eviction_key(2));
}

TEST(Learner, ABurstGivesAllItsNamesOneStamp) {
  ScriptedCalls calls;
  calls.hits({1, 2, 3});
  EXPECT_EQ(calls.key(1).stamp, calls.key(2).stamp);
  EXPECT_EQ(calls.key(1).stamp, calls.key(3).stamp);
  calls.wait(90 * kMillisecond);
  calls.hits({4});
  EXPECT_EQ(calls.key(1).stamp, calls.key(4).stamp);
  calls.wait(101 * kMillisecond);
  calls.hits({5});
  EXPECT_LT(calls.key(1).stamp, calls.key(5).stamp);
}

TEST(Learner, ABurstEndsAfterASecond) {
  ScriptedCalls calls;
  calls.hits({1});
  for (std::uint64_t name = 2; name < 15; ++name) {
    calls.wait(90 * kMillisecond);
    calls.hits({name});
  }
  EXPECT_LT(calls.key(1).stamp, calls.key(14).stamp);
}

TEST(Learner, TheBurstsOfTwoProcessesAreTheirOwn) {
  ScriptedCalls calls;
  calls.hits({1});
  calls.wait(40 * kMillisecond);
  calls.probe(Names{2}, Lookup::kHit, Caller{.tid = 21, .process = 20});
  calls.wait(40 * kMillisecond);
  calls.hits({3});
  EXPECT_EQ(calls.key(1).stamp, calls.key(3).stamp);
  EXPECT_LT(calls.key(1).stamp, calls.key(2).stamp);
}

TEST(Learner, EvictionTakesAPrefixFromItsEnd) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3, 4});
  EXPECT_EQ((Names{4, 3, 2, 1}), calls.victims());
  calls.next_request({1, 2});
  EXPECT_EQ((Names{4, 3, 2, 1}), calls.victims());
  calls.first_request({5, 6});
  calls.next_request({1, 2, 3, 4});
  EXPECT_EQ((Names{6, 5, 4, 3, 2, 1}), calls.victims());
}

TEST(Learner, VictimsGoOnAfterOneThatStays) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3, 4});
  const auto two = calls.learner.victims(2);
  ASSERT_EQ(2u, two.size());
  EXPECT_EQ(4u, two[0].name);
  const auto rest = calls.learner.victims(10, two[1]);
  ASSERT_EQ(2u, rest.size());
  EXPECT_EQ(2u, rest[0].name);
  EXPECT_EQ(1u, rest[1].name);
  // The place is kept although the name has gone.
  calls.learner.forget(3);
  EXPECT_EQ(2u, calls.learner.victims(10, two[1])[0].name);
}

TEST(Learner, AStoreHasTheStampOfItsLookup) {
  ScriptedCalls calls;
  calls.misses({1, 2});
  calls.wait(5 * kSecond);
  calls.hits({3});
  calls.store({1, 2});
  EXPECT_EQ(calls.key(1).stamp, calls.key(2).stamp);
  EXPECT_LT(calls.key(1).stamp, calls.key(3).stamp);
}

TEST(Learner, AStoreNeverLookedUpHasTheStampOfTheMissItBelongsTo) {
  ScriptedCalls calls;
  calls.misses({1});  // the runtime stops here, and will store 1, 2, 3
  calls.wait(5 * kSecond);
  calls.hits({9});
  calls.store({1, 2, 3});
  EXPECT_EQ(calls.key(1).stamp, calls.key(2).stamp);
  EXPECT_EQ(calls.key(1).stamp, calls.key(3).stamp);
  EXPECT_LT(calls.key(3).stamp, calls.key(9).stamp);
  // A second after the head was stored its request is over.
  calls.wait(3 * kSecond);
  calls.store({4});
  EXPECT_GT(calls.key(4).stamp, calls.key(9).stamp);
}

TEST(Learner, AMissIsForgottenAsAHeadAfterHalfAMinute) {
  ScriptedCalls calls;
  calls.misses({1});
  const std::int64_t missed = calls.now;
  calls.wait(31 * kSecond);
  calls.store({2});
  EXPECT_GE(static_cast<std::int64_t>(calls.key(2).stamp) * 10 * kMillisecond,
            missed + 30 * kSecond);
}

TEST(Learner, AStoreOfAStoredNameOnlyRaisesItsStamp) {
  ScriptedCalls calls;
  calls.first_request({1});
  calls.wait(60 * kSecond);
  const auto before = calls.key(1);
  calls.learner.store_start(1, calls.engine, calls.now);
  EXPECT_GT(calls.key(1).stamp, before.stamp);
  EXPECT_EQ(calls.key(1).birth, before.birth);
}

TEST(Learner, ALoadRefreshesWhatWasNotLookedUpForAMinute) {
  ScriptedCalls calls;
  calls.first_request({1});
  const auto before = calls.key(1);
  calls.wait(30 * kSecond);
  calls.learner.load(1, calls.engine, calls.now);
  EXPECT_EQ(before.stamp, calls.key(1).stamp);
  calls.wait(40 * kSecond);
  calls.learner.load(1, calls.engine, calls.now);
  EXPECT_LT(before.stamp, calls.key(1).stamp);
}

TEST(Learner, LoadsAloneGiveAPrefixOneStamp) {
  ScriptedCalls calls;
  for (const std::uint64_t name : {1, 2, 3}) {
    calls.learner.load(name, calls.engine, calls.now);
    calls.wait(3 * kMillisecond);
  }
  EXPECT_EQ((Names{3, 2, 1}), calls.victims());
}

TEST(Learner, LinksNamesInTheOrderOfTheirLookups) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3});
  EXPECT_EQ(0u, calls.parent(1));
  EXPECT_EQ(1u, calls.parent(2));
  EXPECT_EQ(2u, calls.parent(3));
  EXPECT_FALSE(calls.firm(3));
  calls.next_request({1, 2, 3});
  EXPECT_EQ(2u, calls.parent(3));
  EXPECT_TRUE(calls.firm(3));
  EXPECT_EQ((Names{2}), calls.learner.children(1));
  EXPECT_FALSE(calls.learner.is_tip(2));
  EXPECT_TRUE(calls.learner.is_tip(3));
}

TEST(Learner, APauseBeginsAnotherPrefix) {
  ScriptedCalls calls;
  calls.first_request({1, 2});
  calls.first_request({3, 4});
  EXPECT_EQ(0u, calls.parent(3));
  EXPECT_EQ(3u, calls.parent(4));
}

TEST(Learner, LinksOfOneThreadAreItsOwn) {
  ScriptedCalls calls;
  const Caller other{.tid = 12, .process = 10};
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 1; i < 20; ++i) {
      calls.probe(Names{i}, Lookup::kHit, calls.engine);
      calls.probe(Names{100 + i}, Lookup::kHit, other);
    }
    calls.wait(2 * kSecond);
  }
  for (std::uint64_t i = 2; i < 20; ++i) {
    EXPECT_EQ(i - 1, calls.parent(i));
    EXPECT_EQ(100 + i - 1, calls.parent(100 + i));
  }
}

TEST(Learner, TheOrderOfLookupsReplacesThatOfStores) {
  ScriptedCalls calls;
  calls.misses({1});
  calls.wait(200 * kMillisecond);
  calls.store({1, 3, 2, 4});  // by many threads, so out of order
  calls.wait(2 * kSecond);
  calls.next_request({1, 2, 3, 4});
  calls.next_request({1, 2, 3, 4});
  EXPECT_EQ(1u, calls.parent(2));
  EXPECT_EQ(2u, calls.parent(3));
  EXPECT_EQ(3u, calls.parent(4));
}

TEST(Learner, TheLookupsThatStoresBeginWithTeachNothing) {
  ScriptedCalls calls;
  calls.misses({1, 2, 3});
  calls.wait(5 * kSecond);
  const Caller store_thread{.tid = 12, .process = 10};
  calls.probe(Names{1, 3, 2}, Lookup::kMiss, store_thread);
  calls.store({1, 2, 3});
  EXPECT_EQ(1u, calls.parent(2));
  EXPECT_EQ(2u, calls.parent(3));
  EXPECT_LT(calls.key(3).stamp, 100'100u) << "that of its first lookup";
}

TEST(Learner, OneStrayOrderDoesNotUndoASettledLink) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3});
  for (int i = 0; i < 3; ++i) calls.next_request({1, 2, 3});
  calls.next_request({7, 3});
  EXPECT_EQ(2u, calls.parent(3));
  EXPECT_TRUE(calls.firm(3));
}

TEST(Learner, ALinkFollowsAnOrderThatHasChangedForGood) {
  ScriptedCalls calls;
  for (int i = 0; i < 4; ++i) calls.next_request({1, 2, 3, 4, 5, 6, 7, 8, 9});
  ASSERT_EQ(2u, calls.parent(3));
  for (int i = 0; i < 8; ++i) calls.next_request({1, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(1u, calls.parent(3));
}

TEST(Learner, TwoNamesAreNeverEachOthersParent) {
  ScriptedCalls calls;
  for (int i = 0; i < 6; ++i) {
    calls.next_request({1, 2});
    calls.next_request({2, 1});
    EXPECT_FALSE(calls.parent(1) == 2 && calls.parent(2) == 1);
  }
}

TEST(Learner, APrefixThatBeginsAgainDoesNotFollowItself) {
  ScriptedCalls calls;
  // Longer than any pause that would tell its rounds apart.
  std::vector<std::uint64_t> chain(3000);
  std::iota(chain.begin(), chain.end(), 1);
  for (int round = 0; round < 6; ++round) calls.probe(chain, order::Lookup::kHit, calls.engine);
  EXPECT_EQ(0u, calls.parent(1));
  for (std::uint64_t name = 2; name <= chain.size(); ++name)
    ASSERT_EQ(name - 1, calls.parent(name));
}

TEST(Learner, ARunRefreshesTheAncestorsThatWereNotLookedUp) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3, 4});
  calls.next_request({1, 2, 3, 4});
  const Stamp before = calls.key(1).stamp;
  calls.first_request({8, 9});
  calls.next_request({3, 4});  // 1 and 2 are in the engine's own memory
  EXPECT_LT(before, calls.key(1).stamp);
  EXPECT_EQ(calls.key(4).stamp, calls.key(1).stamp);
  EXPECT_EQ((Names{9, 8, 4, 3, 2, 1}), calls.victims());
}

TEST(Learner, ANewEndRefreshesItsPrefix) {
  ScriptedCalls calls;
  calls.first_request({1, 2});
  calls.next_request({1, 2});
  const std::uint64_t before = calls.key(1).stamp;
  calls.wait(5 * kSecond);
  ASSERT_TRUE(calls.learner.set_parent(3, 2, calls.now));
  calls.store({3});
  EXPECT_LT(before, calls.key(1).stamp);
  EXPECT_EQ(calls.key(3).stamp, calls.key(1).stamp);
}

TEST(Learner, AGuessRefreshesNothing) {
  ScriptedCalls calls;
  calls.first_request({1, 2});
  ASSERT_FALSE(calls.firm(2));
  const std::uint64_t before = calls.key(1).stamp;
  Names others;
  for (std::uint64_t name = 100; name < 200; ++name) others.push_back(name);
  calls.probe(others, Lookup::kHit, calls.engine);
  calls.wait(2 * kSecond);
  calls.next_request({2});
  EXPECT_EQ(before, calls.key(1).stamp);
}

TEST(Learner, LongChainsAreRefreshedToTheirRoot) {
  ScriptedCalls calls;
  Names chain;
  for (std::uint64_t name = 1; name <= 2000; ++name) chain.push_back(name);
  tell_order(calls, chain);
  calls.probe(chain, Lookup::kHit, calls.engine);
  calls.wait(10 * kSecond);
  calls.hits({2000});
  EXPECT_EQ(calls.key(2000).stamp, calls.key(1).stamp);
}

TEST(Learner, InvisibleCallersShowBurstsButNoOrder) {
  ScriptedCalls calls;
  calls.engine = Caller{.tid = 0, .process = 0};
  calls.first_request({1, 2, 3});
  calls.next_request({1, 2, 3});
  calls.next_request({1, 2, 3});
  EXPECT_FALSE(calls.learner.parent(2));
  EXPECT_FALSE(calls.learner.parent(3));
  EXPECT_EQ((Names{3, 2, 1}), calls.victims());
  calls.first_request({4, 5});
  EXPECT_EQ((Names{3, 2, 1, 5, 4}), calls.victims());
}

TEST(Learner, ALookupByAnEnumeratorTeachesAndRefreshesNothing) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3});
  calls.next_request({1, 2, 3});
  const auto before = calls.key(1);
  const Caller crawler{.tid = 31, .process = 30};
  calls.learner.enumerated(crawler, calls.now);
  for (int i = 0; i < 5; ++i) calls.probe(Names{3, 2, 1, 77}, Lookup::kHit, crawler);
  EXPECT_EQ(before, calls.key(1));
  EXPECT_EQ(1u, calls.parent(2));
  EXPECT_FALSE(calls.learner.eviction_key(77));
  EXPECT_EQ(3u, calls.learner.sizes().names);
  // Its opens count.
  calls.wait(59 * kSecond);
  calls.learner.load(1, crawler, calls.now + 2 * kSecond);
  EXPECT_LT(before.stamp, calls.key(1).stamp);
  // And so do its lookups after a minute.
  calls.wait(3 * kSecond);
  calls.probe(Names{77}, Lookup::kHit, crawler);
  EXPECT_TRUE(calls.learner.eviction_key(77));
}

TEST(Learner, AnInvisibleEnumeratorIsIgnoredForASecondOnly) {
  ScriptedCalls calls;
  const Caller invisible{};
  calls.learner.enumerated(invisible, calls.now);
  calls.probe(Names{1}, Lookup::kHit, invisible);
  EXPECT_FALSE(calls.learner.eviction_key(1));
  calls.wait(kSecond);
  calls.probe(Names{1}, Lookup::kHit, invisible);
  EXPECT_TRUE(calls.learner.eviction_key(1));
}

TEST(Learner, AnEnumerationThatWasNoneIsTakenBack) {
  ScriptedCalls calls;
  const Caller syncer{.tid = 31, .process = 30};
  calls.learner.enumerated(syncer, calls.now);
  calls.probe(Names{1}, Lookup::kHit, syncer);
  EXPECT_FALSE(calls.learner.eviction_key(1));
  calls.learner.silent_until(syncer, 0, calls.now);
  calls.probe(Names{1}, Lookup::kHit, syncer);
  EXPECT_TRUE(calls.learner.eviction_key(1));
  // It has listed another directory before.
  calls.learner.enumerated(syncer, calls.now);
  calls.learner.silent_until(syncer, calls.now + 30 * kSecond, calls.now);
  calls.wait(29 * kSecond);
  calls.probe(Names{2}, Lookup::kHit, syncer);
  EXPECT_FALSE(calls.learner.eviction_key(2));
  calls.wait(2 * kSecond);
  calls.probe(Names{2}, Lookup::kHit, syncer);
  EXPECT_TRUE(calls.learner.eviction_key(2));
}

TEST(Learner, AHintOverridesWhatIsLearnedAndStays) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3});
  calls.next_request({1, 2, 3});
  ASSERT_EQ(2u, calls.parent(3));
  ASSERT_TRUE(calls.learner.set_parent(3, 1, calls.now));
  EXPECT_EQ(1u, calls.parent(3));
  EXPECT_TRUE(calls.firm(3));
  for (int i = 0; i < 10; ++i) calls.next_request({1, 2, 3});
  EXPECT_EQ(1u, calls.parent(3));
}

TEST(Learner, WhatWasToldCanBeTakenBackAndIsLearnedAnew) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3});
  ASSERT_TRUE(calls.learner.set_parent(3, 1, calls.now));
  EXPECT_TRUE(calls.learner.forget_parent(3));
  EXPECT_EQ(0u, calls.parent(3));
  EXPECT_FALSE(calls.learner.forget_parent(3));
  EXPECT_FALSE(calls.learner.forget_parent(99));
  calls.next_request({1, 2, 3});
  calls.next_request({1, 2, 3});
  EXPECT_EQ(2u, calls.parent(3));
}

TEST(Learner, AHintThatClosesACircleIsRefused) {
  ScriptedCalls calls;
  tell_order(calls, Names{1, 2, 3});
  EXPECT_FALSE(calls.learner.set_parent(1, 3, calls.now));
  EXPECT_FALSE(calls.learner.set_parent(2, 2, calls.now));
  EXPECT_EQ(0u, calls.parent(1));
  EXPECT_EQ(1u, calls.parent(2));
}

TEST(Learner, AHintBreaksTheLearnedLinksThatContradictIt) {
  ScriptedCalls calls;
  for (int i = 0; i < 4; ++i) calls.next_request({1, 2, 3});
  ASSERT_TRUE(calls.learner.set_parent(1, 3, calls.now));
  EXPECT_EQ(3u, calls.parent(1));
  EXPECT_EQ(0u, calls.parent(3));
  EXPECT_EQ(1u, calls.parent(2));
}

TEST(Learner, AHintMakesTheFollowerTheYounger) {
  ScriptedCalls calls;
  calls.hits({3, 2, 1});
  EXPECT_EQ((Names{1, 2, 3}), calls.victims());
  tell_order(calls, Names{1, 2, 3});
  EXPECT_EQ((Names{3, 2, 1}), calls.victims());
}

TEST(Learner, TheLikelyNextNamesEndAtABranch) {
  ScriptedCalls calls;
  tell_order(calls, Names{1, 2, 3, 4, 5});
  tell_order(calls, Names{3, 14, 15});
  calls.hits({1, 2, 3, 4, 5});
  // Nobody has stored the other branch.
  EXPECT_EQ((Names{2, 3, 4, 5}), calls.learner.next_likely(1, 64));
  EXPECT_EQ((Names{2, 3}), calls.learner.next_likely(1, 2));
  calls.hits({14, 15});
  EXPECT_EQ((Names{2, 3}), calls.learner.next_likely(1, 64));
  EXPECT_EQ((Names{15}), calls.learner.next_likely(14, 64));
  calls.learner.forget(4);
  EXPECT_EQ((Names{2, 3, 14, 15}), calls.learner.next_likely(1, 64));
}

TEST(Learner, AsksForNoMoreThanAPrefetchersWindow) {
  ScriptedCalls calls;
  Names chain;
  for (std::uint64_t name = 1; name <= 100; ++name) chain.push_back(name);
  tell_order(calls, chain);
  calls.probe(chain, Lookup::kHit, calls.engine);
  EXPECT_EQ(Learner::kMaxLikely, calls.learner.next_likely(1, 1000).size());
}

TEST(Learner, AnEvictedNameKeepsItsPlaceForANewStore) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3});
  calls.next_request({1, 2, 3});
  calls.learner.forget(2);
  EXPECT_EQ(2u, calls.parent(3));
  calls.wait(60 * kSecond);
  calls.store({2});
  EXPECT_EQ(1u, calls.parent(2));
  EXPECT_TRUE(calls.firm(2));
}

TEST(Learner, NamesThatAreNotStoredAreDroppedAfterTenMinutes) {
  ScriptedCalls calls;
  calls.misses({1, 2, 3});
  calls.wait(601 * kSecond);
  calls.misses({4, 5});
  EXPECT_EQ(2u, calls.learner.sizes().names);
}

TEST(Learner, NamesThatAreNotStoredAreBounded) {
  ScriptedCalls calls;
  for (std::uint64_t name = 0; name < Learner::kMaxWaiting + 1000; ++name)
    calls.learner.probe(name, calls.engine, Lookup::kMiss, calls.now);
  EXPECT_LE(calls.learner.sizes().names, Learner::kMaxWaiting);
}

TEST(Learner, ManyThreadsAndProcessesAreBounded) {
  ScriptedCalls calls;
  calls.first_request({1, 2, 3});
  calls.next_request({1, 2, 3});
  for (std::uint32_t process = 100; process < 3000; ++process) {
    calls.probe(Names{process}, Lookup::kHit, Caller{.tid = process, .process = process});
  }
  // An engine that pauses is not forgotten for them: its burst goes on as its own.
  calls.next_request({1, 2, 3});
  EXPECT_EQ(2u, calls.parent(3));
}

TEST(Learner, TimeThatGoesBackCountsAsNow) {
  ScriptedCalls calls;
  calls.hits({1});
  const auto before = calls.key(1);
  calls.now -= 100 * kSecond;
  calls.hits({1, 2});
  EXPECT_EQ(before, calls.key(1));
  EXPECT_EQ(before.stamp, calls.key(2).stamp);
}

TEST(Learner, CallsFromManyThreadsAtOnceAreSafe) {
  Learner learner;
  std::vector<std::thread> threads;
  for (std::uint32_t tid = 1; tid <= 4; ++tid) {
    threads.emplace_back([&learner, tid] {
      for (std::uint64_t i = 1; i <= 5000; ++i) {
        const std::uint64_t name = i * 7 % 512 + 1;
        const std::int64_t now = static_cast<std::int64_t>(i) * kMillisecond;
        const Caller caller{.tid = tid, .process = 1 + tid % 2};
        learner.probe(name, caller, i % 3 == 0 ? Lookup::kMiss : Lookup::kHit, now);
        if (i % 5 == 0) learner.store_start(name, caller, now);
        if (i % 5 == 0) learner.published(name, now);
        if (i % 11 == 0) learner.forget(name);
        if (i % 17 == 0) learner.victims(5);
        if (i % 23 == 0) learner.take_changed(10);
        learner.next_likely(name, 8);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(learner.victims(1000).size(), 512u);
}

}  // namespace
}  // namespace kvcachefs::order
