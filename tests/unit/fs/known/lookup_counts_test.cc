#include "fs/known/lookup_counts.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace kvcachefs {
namespace {

constexpr order::Caller kProber{.tid = 11, .process = 10};
constexpr order::Caller kStorer{.tid = 12, .process = 10};
constexpr order::Caller kOther{.tid = 21, .process = 20};
constexpr std::int64_t kSecond = 1'000'000'000;

struct Counted {
  UseTable uses;
  Tenants tenants;
  LookupCounts counts{uses, tenants};
  UseTable::Series series = uses.series_of(Runtime::kVllm, "m");
  std::int64_t now = 100 * kSecond;

  AskedName block(std::uint64_t number, std::uint64_t block = 0) const {
    return {
        .number = number, .block = block == 0 ? number : block, .series = series, .tenant = 3};
  }
  static AskedName plain(std::uint64_t number) {
    return {.number = number, .block = 0, .series = std::nullopt};
  }
  bool missed(const AskedName& name, const order::Caller& caller = kProber) {
    return counts.missed(name, caller, now += 1000);
  }
  void found(const AskedName& name, const order::Caller& caller = kProber) {
    counts.found(name, caller, now += 1000);
  }
  // Hits and misses, when nothing is pending any more.
  std::pair<std::uint64_t, std::uint64_t> ratio() {
    EXPECT_FALSE(counts.settle(now += kSecond));
    const LookupCounts::Totals totals = counts.settled();
    return {totals.hits, totals.misses};
  }
};

using Ratio = std::pair<std::uint64_t, std::uint64_t>;

TEST(LookupCounts, AStoreTakesItsOwnLookupBack) {
  Counted of;
  of.missed(of.block(1), kStorer);
  of.counts.made(of.block(1), kStorer);
  of.missed(of.plain(2), kStorer);
  of.counts.made(of.plain(2), kStorer);
  EXPECT_EQ((Ratio{0, 0}), of.ratio());
}

TEST(LookupCounts, AProbeBeforeAStoreIsOneMiss) {
  Counted of;
  for (const AskedName& name : {of.block(1), of.plain(2)}) {
    of.missed(name);
    of.missed(name, kStorer);
    of.counts.made(name, kStorer);
  }
  EXPECT_EQ((Ratio{0, 1}), of.ratio()) << "what the plain name becomes is not known here";
  EXPECT_EQ(1u, of.uses.uses().at(0).misses);
  EXPECT_EQ(1u, of.tenants.lookups(3).misses);
}

TEST(LookupCounts, AProbeByAnotherProcessIsItsOwn) {
  Counted of;
  of.missed(of.block(1), kOther);
  of.missed(of.block(1), kStorer);
  of.counts.made(of.block(1), kStorer);
  EXPECT_EQ((Ratio{0, 1}), of.ratio());
}

TEST(LookupCounts, AProbeAndItsLoadAreOneHit) {
  Counted of;
  of.found(of.block(1));
  of.now += 5 * kSecond;
  of.found(of.block(1));
  of.counts.opened(1, kProber.process);
  EXPECT_EQ((Ratio{1, 0}), of.ratio());
  of.found(of.block(1));
  EXPECT_EQ((Ratio{2, 0}), of.ratio()) << "after the load it is another question";
}

TEST(LookupCounts, AQuestionEndsAfterAMinute) {
  Counted of;
  of.found(of.block(1));
  of.missed(of.block(2));
  of.now += 61 * kSecond;
  of.found(of.block(1));
  of.missed(of.block(2));
  EXPECT_EQ((Ratio{2, 2}), of.ratio());
}

TEST(LookupCounts, TheFilesOfOneBlockAreOneHit) {
  Counted of;
  for (int request = 1; request <= 2; ++request) {
    of.found(of.block(1, 77));
    for (std::uint64_t layer = 2; layer < 6; ++layer) {
      of.found(of.block(layer, 77));
      of.counts.opened(layer, kProber.process);
    }
    EXPECT_EQ((Ratio{request, 0}), of.ratio());
  }
}

TEST(LookupCounts, WhatIsStoredOverAnOlderFileIsNoHit) {
  Counted of;
  of.found(of.block(1));
  of.counts.made(of.block(1), kProber);
  of.found(of.block(2));
  of.counts.rewritten(2, kProber.process);
  EXPECT_EQ((Ratio{0, 0}), of.ratio());
  of.found(of.block(1));
  EXPECT_EQ((Ratio{1, 0}), of.ratio());
}

TEST(LookupCounts, AMissAfterAHitIsAnotherQuestion) {
  Counted of;
  of.found(of.block(1));
  of.missed(of.block(1));
  of.counts.made(of.block(1), kOther);
  of.found(of.block(1));
  EXPECT_EQ((Ratio{2, 1}), of.ratio());
}

TEST(LookupCounts, PendingLookupsCountLater) {
  Counted of;
  of.missed(of.block(1));
  EXPECT_TRUE(of.counts.settle(of.now + 1000));
  EXPECT_EQ((Ratio{0, 1}), of.ratio());
  of.counts.made(of.block(1), kProber);
  EXPECT_EQ((Ratio{0, 1}), of.ratio()) << "what was counted stays so";
}

TEST(LookupCounts, SettledWaitsForWhatCameJustNow) {
  Counted of;
  of.counts.missed(of.block(1), kProber, monotonic_now());
  EXPECT_EQ(1u, of.counts.settled().misses);
}

TEST(LookupCounts, OnlyWhatIsAskedForOftenMayBeRemembered) {
  Counted of;
  for (const AskedName& name : {of.block(1), of.plain(2)}) {
    for (unsigned asked = 1; asked < LookupCounts::kOften; ++asked)
      EXPECT_FALSE(of.missed(name)) << asked;
    EXPECT_TRUE(of.missed(name));
  }
}

// A directory is missing. What its making costs, and what was asked before: two lookups by each of
// `others`, and the burst of who makes it with a file at once.
struct MakingCase {
  const char* about;
  unsigned others;
  unsigned burst;  // one more for each directory that is made below
  unsigned questions;
};

TEST(LookupCounts, TheMakingOfDirectoriesCostsLookups) {
  for (const MakingCase& one : {
           MakingCase{"mkdir, Python's makedirs", 0, 1, 0},
           MakingCase{"Python, a probe by another thread", 1, 1, 1},
           MakingCase{"Python, a probe by the same thread", 0, 2, 1},
           MakingCase{"Python, a probe, and a look before the store", 0, 3, 1},
           MakingCase{"C++, a probe by another thread", 1, 2, 1},
           MakingCase{"C++, probes by others, and a look before the store", 3, 3, 3},
       }) {
    for (unsigned levels = 1; levels <= 3; ++levels) {
      Counted of;
      const AskedName above{.number = 1, .block = 0, .series = of.series, .tenant = 3};
      for (unsigned at = 0; at < 2 * one.others; ++at)
        of.missed(above, {.tid = 100 + at / 2, .process = 10});
      for (unsigned at = 0; at < one.burst + levels - 1; ++at) of.missed(above, kStorer);
      Unfound unfound = of.counts.made(above, kStorer);
      for (unsigned level = 2; level <= levels; ++level) {
        of.missed(of.plain(level), kStorer);
        unfound = unfound.with(of.counts.made(of.plain(level), kStorer));
      }
      EXPECT_EQ(one.questions, unfound.in_directory()) << one.about << levels;
      of.counts.count_unfound(unfound.in_directory(), of.block(9));
      EXPECT_EQ((Ratio{0, one.questions}), of.ratio()) << one.about << levels;
    }
  }
}

TEST(LookupCounts, ADirectoryThatWasMadeBeforeIsOfAnotherCall) {
  const Unfound root{.by_others = 0, .burst = 1};
  EXPECT_EQ(
      0u,
      root.with({.by_others = 0, .burst = 2}).with({.by_others = 0, .burst = 1}).in_directory())
      << "Python makes two directories";
  EXPECT_EQ(
      1u,
      root.with({.by_others = 0, .burst = 3}).with({.by_others = 0, .burst = 1}).in_directory())
      << "after a probe";
  EXPECT_EQ(
      2u,
      root.with({.by_others = 2, .burst = 2}).with({.by_others = 0, .burst = 1}).in_directory())
      << "after two by others";
}

TEST(LookupCounts, ABatchOfProbesIsNoBurst) {
  Counted of;
  const AskedName above{.number = 1, .block = 0, .series = of.series};
  const AskedName another{.number = 2, .block = 0, .series = of.series};
  for (const AskedName& name : {above, another, above}) of.missed(name, kStorer);
  for (const AskedName& name : {another, above, above}) of.missed(name, kStorer);
  const Unfound unfound = of.counts.made(above, kStorer);
  EXPECT_EQ(2u, unfound.by_others);
  EXPECT_EQ(2u, unfound.burst);
}

TEST(LookupCounts, ADirectoryAskedForBeforeWasProbed) {
  Counted of;
  const AskedName above{.number = 1, .block = 0, .series = of.series};
  of.missed(above);
  EXPECT_EQ((Ratio{0, 1}), of.ratio());
  for (int at = 0; at < 3; ++at) of.missed(above, kStorer);
  EXPECT_EQ(0u, of.counts.made(above, kStorer).in_directory());
}

TEST(LookupCounts, LookupsOfAThreadWithNothingBetweenThemAreOneQuestion) {
  Counted of;
  const AskedName above{.number = 2, .block = 0, .series = of.series};
  for (const AskedName& name : {of.plain(1), above})
    for (int at = 0; at < 5; ++at) of.missed(name);
  EXPECT_EQ((Ratio{0, 2}), of.ratio());
}

TEST(LookupCounts, AFilesProbesAreAllButTheLastLookup) {
  Counted of;
  of.missed(of.plain(1));
  of.missed(of.plain(1), kOther);
  of.missed(of.plain(1), kStorer);
  EXPECT_EQ(2u, of.counts.made(of.plain(1), kStorer).of_file());
  EXPECT_EQ(0u, of.counts.made(of.plain(1), kStorer).of_file()) << "it is made once";
}

TEST(LookupCounts, ManyThreadsLoseNothing) {
  Counted of;
  constexpr unsigned kThreads = 4;
  constexpr unsigned kNames = 2000;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&of, thread] {
      const order::Caller caller{.tid = 100 + thread, .process = 100 + thread};
      for (unsigned name = 1; name <= kNames; ++name) {
        if (name % 2 == 0) {
          of.counts.missed(of.block(name), caller, monotonic_now());
          of.counts.missed(of.block(name), caller, monotonic_now());
          of.counts.made(of.block(name), caller);
        } else {
          of.counts.found(of.block(name), caller, monotonic_now());
          of.counts.opened(name, caller.process);
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  const LookupCounts::Totals totals = of.counts.settled();
  EXPECT_EQ(kThreads * kNames / 2, totals.hits);
  EXPECT_EQ(kThreads * kNames / 2, totals.misses);
}

}  // namespace
}  // namespace kvcachefs
