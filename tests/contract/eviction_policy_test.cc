// The contract of EvictionPolicy, for every implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fs/evict/chain_policy.h"
#include "fs/evict/lru_policy.h"
#include "fs/evict/policy.h"
#include "tests/fakes/seed.h"

namespace kvcachefs {
namespace {

using What = order::Note::What;
using Names = std::vector<std::uint64_t>;

struct PolicyImplementation {
  std::string name;
  std::function<std::unique_ptr<EvictionPolicy>(order::Learner& learner)> make;
};

class EvictionPolicyContract : public ::testing::TestWithParam<PolicyImplementation> {
 protected:
  EvictionPolicyContract() : policy_(GetParam().make(learner_)) {}

  void note(What what, std::uint64_t name, std::uint32_t thread = 11) {
    const order::Note note{.what = what,
                           .name = name,
                           .caller = {.tid = thread, .process = 10},
                           .when_ns = now_.fetch_add(5'000'000'000)};
    order::tell(learner_, note);
    policy_->observe(note);
  }
  void group(std::uint64_t name, order::Group group) {
    const order::Note note{.what = What::kGrouped,
                           .name = name,
                           .caller = {},
                           .when_ns = now_.fetch_add(5'000'000'000),
                           .group = group};
    order::tell(learner_, note);
    policy_->observe(note);
  }
  Names victims(std::size_t limit, const std::optional<order::Victim>& after = {},
                order::Group group = 0) {
    Names names;
    for (const order::Victim& victim : policy_->victims(group, limit, after))
      names.push_back(victim.name);
    return names;
  }

  order::Learner learner_;
  const std::unique_ptr<EvictionPolicy> policy_;
  std::atomic<std::int64_t> now_{1'000'000'000'000};
};

TEST_P(EvictionPolicyContract, HasAName) { EXPECT_EQ(GetParam().name, policy_->name()); }

TEST_P(EvictionPolicyContract, HasNoVictimsAtFirst) { EXPECT_EQ(Names{}, victims(10)); }

TEST_P(EvictionPolicyContract, TakesWhatWasUsedLongestAgo) {
  for (const std::uint64_t name : {1, 2, 3}) note(What::kStored, name);
  EXPECT_EQ((Names{1, 2, 3}), victims(10));
  note(What::kHit, 1);
  EXPECT_EQ((Names{2, 3, 1}), victims(10));
  EXPECT_EQ((Names{2}), victims(1));
  EXPECT_EQ(Names{}, victims(0));
}

TEST_P(EvictionPolicyContract, ANameIsRaisedToTheUseOfAnother) {
  for (const std::uint64_t name : {1, 2, 3, 4}) note(What::kStored, name);
  policy_->raise(1, policy_->key_of(3)->stamp);
  EXPECT_EQ(policy_->key_of(3)->stamp, policy_->key_of(1)->stamp);
  EXPECT_EQ(2U, victims(1).front());
  EXPECT_EQ(4U, victims(10).back());
  policy_->raise(4, policy_->key_of(2)->stamp);  // never back
  EXPECT_EQ(4U, victims(10).back());
  policy_->raise(9, 1);  // nobody knows it
  EXPECT_EQ(4U, victims(10).size());
}

TEST_P(EvictionPolicyContract, EachGroupHasItsOwnOrder) {
  for (const std::uint64_t name : {1, 2, 3, 4}) note(What::kStored, name);
  group(1, 63);
  group(3, 63);
  group(9, 63);  // nobody knows it
  EXPECT_EQ((Names{2, 4}), victims(10));
  EXPECT_EQ((Names{1, 3}), victims(10, {}, 63));
  EXPECT_EQ(Names{}, victims(10, {}, 1));
  note(What::kHit, 1);  // stays in it
  EXPECT_EQ((Names{3, 1}), victims(10, {}, 63));
  const std::vector<order::Victim> first = policy_->victims(63, 1, std::nullopt);
  ASSERT_EQ(1U, first.size());
  EXPECT_EQ((Names{1}), victims(10, first.front(), 63));
  note(What::kRemoved, 3);
  group(1, 0);
  EXPECT_EQ((Names{2, 4, 1}), victims(10));
  EXPECT_EQ(Names{}, victims(10, {}, 63));
}

TEST_P(EvictionPolicyContract, AHitOrALoadShowsThatANameIsStored) {
  note(What::kHit, 1);
  note(What::kLoaded, 2);
  EXPECT_EQ((Names{1, 2}), victims(10));
}

TEST_P(EvictionPolicyContract, AMissOrTheBeginningOfAStoreDoesNot) {
  note(What::kMiss, 1);
  note(What::kStoreBegan, 2);
  note(What::kListed, 0);
  EXPECT_EQ(Names{}, victims(10));
}

TEST_P(EvictionPolicyContract, WhatIsRemovedIsNoVictim) {
  for (const std::uint64_t name : {1, 2, 3}) note(What::kStored, name);
  note(What::kRemoved, 2);
  note(What::kRemoved, 9);
  EXPECT_EQ((Names{1, 3}), victims(10));
  note(What::kStored, 2);
  EXPECT_EQ((Names{1, 3, 2}), victims(10));
}

TEST_P(EvictionPolicyContract, AKeyChangesWithAUse) {
  for (const std::uint64_t name : {1, 2, 3}) note(What::kStored, name);
  const std::vector<order::Victim> first = policy_->victims(0, 3, std::nullopt);
  ASSERT_EQ(3u, first.size());
  for (const order::Victim& victim : first)
    EXPECT_EQ(victim.key, policy_->key_of(victim.name)) << victim.name;
  note(What::kHit, 2);
  EXPECT_NE(first[1].key, policy_->key_of(2));
  EXPECT_EQ(first[0].key, policy_->key_of(1));
  note(What::kRemoved, 2);
  EXPECT_FALSE(policy_->key_of(2));
}

TEST_P(EvictionPolicyContract, GoesOnAfterVictimsThatStay) {
  for (std::uint64_t name = 1; name <= 10; ++name) note(What::kStored, name);
  const std::vector<order::Victim> first = policy_->victims(0, 4, std::nullopt);
  ASSERT_EQ(4u, first.size());
  EXPECT_EQ((Names{5, 6, 7}), victims(3, first.back()));
  // Its place is known even when it is gone.
  note(What::kRemoved, 4);
  EXPECT_EQ((Names{5, 6, 7}), victims(3, first.back()));
}

TEST_P(EvictionPolicyContract, AllThatIsStoredComesOnce) {
  std::mt19937_64 random(testing::test_seed());
  std::set<std::uint64_t> stored;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t name = random() % 3000;
    const auto what = static_cast<What>(random() % 6);
    note(what, name, 11 + static_cast<std::uint32_t>(random() % 3));
    if (what == What::kRemoved) stored.erase(name);
    if (what == What::kHit || what == What::kLoaded || what == What::kStored)
      stored.insert(name);
  }
  Names seen;
  std::optional<order::Victim> last;
  while (true) {
    const std::vector<order::Victim> batch = policy_->victims(0, 64, last);
    if (batch.empty()) break;
    for (const order::Victim& victim : batch) seen.push_back(victim.name);
    last = batch.back();
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(Names(stored.begin(), stored.end()), seen);
}

TEST_P(EvictionPolicyContract, ManyThreadsAtOnceAreSafe) {
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t name = thread * 10'000 + i;
        note(What::kStored, name, thread + 1);
        if (i % 3 == 0) (void)policy_->victims(0, 8, std::nullopt);
        if (i % 2 == 0) note(What::kRemoved, name, thread + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(4000u, victims(100'000).size());
}

INSTANTIATE_TEST_SUITE_P(
    All, EvictionPolicyContract,
    ::testing::Values(PolicyImplementation{"chain",
                                           [](order::Learner& learner) {
                                             return std::make_unique<ChainPolicy>(learner);
                                           }},
                      PolicyImplementation{
                          "lru",
                          [](order::Learner&) { return std::make_unique<LruPolicy>(); }}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kvcachefs
