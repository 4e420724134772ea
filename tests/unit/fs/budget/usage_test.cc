// What occupies a device: each step of a file's life moves its bytes, whatever the walk has seen.
#include "fs/budget/usage.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

SealedCopy copy(ObjectId object, std::uint64_t bytes, bool kept = false,
                TenantSlot tenant = 0) {
  return {.object = object, .device = 0, .bytes = bytes, .kept = kept, .tenant = tenant};
}
// A mount that found nothing.
void start_empty(Usage& usage) {
  usage.begin_walk(1);
  usage.end_walk();
}

TEST(Usage, WhatIsAllocatedAheadOfAWriterIsNoUse) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.measured(5, 8192, 4096);
  EXPECT_EQ(8192U, usage.on(0).live);
  EXPECT_EQ(4096U, usage.on(0).ahead);
  usage.measured(5, 16384, 1000);
  EXPECT_EQ(16384U, usage.on(0).all());
  EXPECT_EQ(1000U, usage.on(0).ahead);
  usage.sealed(5, copy(6, 16384));
  EXPECT_EQ(0U, usage.on(0).ahead);
}

TEST(Usage, WhatIsReservedIsNotCountedOnceMoreWhenItComes) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 3);
  usage.measured(5, 1000);
  usage.reserve(5, 0, 3, 48'000);
  EXPECT_EQ(49'000U, usage.on(0).live);
  EXPECT_EQ(49'000U, usage.by_tenant()[3].live);
  for (const std::uint64_t bytes : {20'000U, 49'000U}) {
    usage.measured(5, bytes);
    EXPECT_EQ(49'000U, usage.on(0).live) << bytes;
    EXPECT_EQ(49'000U, usage.by_tenant()[3].live) << bytes;
  }
  // Others write it as well.
  usage.measured(5, 60'000);
  EXPECT_EQ(60'000U, usage.on(0).live);
  usage.give_back(5, 48'000);
  EXPECT_EQ(60'000U, usage.on(0).live);
}

TEST(Usage, ReservationsForOneFileAddUp) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.reserve(5, 0, 0, 1000);
  usage.reserve(5, 0, 0, 2000);
  EXPECT_EQ(3000U, usage.on(0).live);
  usage.measured(5, 1200);
  EXPECT_EQ(3000U, usage.on(0).live);
  usage.give_back(5, 1000);
  EXPECT_EQ(3000U, usage.on(0).live) << "the second one has taken 200";
  usage.measured(5, 500);  // cut
  EXPECT_EQ(2500U, usage.on(0).live);
  usage.give_back(5, 2000);
  EXPECT_EQ(500U, usage.on(0).live);
  EXPECT_EQ(500U, usage.by_tenant()[0].live);
}

TEST(Usage, WhatIsReservedAndNotTakenIsFreeAgain) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.reserve(5, 0, 0, 1000);
  usage.reserve(5, 0, 0, 2000);
  usage.give_back(5, 2000);
  EXPECT_EQ(1000U, usage.on(0).live);
  // Its inode goes before the last call is done.
  usage.reaped(5, 6);
  EXPECT_EQ(1000U, usage.on(0).live);
  usage.give_back(5, 1000);
  EXPECT_EQ(0U, usage.on(0).all());
}

TEST(Usage, FollowsAFileFromItsMakingToItsEnd) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.measured(5, 4096);
  usage.measured(5, 8192);
  EXPECT_EQ(8192U, usage.on(0).live);
  EXPECT_EQ(8192U, usage.on(0).written);
  usage.sealed(5, copy(6, 12288));
  EXPECT_EQ(0U, usage.on(0).live);
  EXPECT_EQ(12288U, usage.on(0).evictable);
  EXPECT_EQ(12288U, usage.on(0).written);
  usage.nameless(5, copy(6, 12288), false);
  EXPECT_EQ(12288U, usage.on(0).leaving);
  EXPECT_EQ(12288U, usage.on(0).all());
  usage.reaped(5, 6);
  EXPECT_EQ(0U, usage.on(0).all());
  EXPECT_EQ(0U, usage.live_files());
}

TEST(Usage, WhatIsOpenWithoutANameIsNotLeaving) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.sealed(5, copy(6, 4096));
  usage.nameless(5, copy(6, 4096), true);
  EXPECT_EQ(0U, usage.on(0).leaving);
  EXPECT_EQ(4096U, usage.on(0).live);
  usage.reaped(5, 6);
  EXPECT_EQ(0U, usage.on(0).all());
}

TEST(Usage, WhatIsOpenCannotBeEvictedUntilItIsClosed) {
  Usage usage(1);
  start_empty(usage);
  usage.sealed(5, copy(6, 4096, false, 1));
  usage.opened(copy(6, 4096, false, 1));
  EXPECT_EQ(4096U, usage.on(0).open);
  EXPECT_EQ(0U, usage.on(0).evictable);
  EXPECT_EQ(4096U, usage.on(0).all());
  EXPECT_EQ(4096U, usage.by_tenant()[1].stays());
  // What is kept stays anyhow.
  usage.counted_anew({.object = 6, .bytes = 4096, .kept = true, .tenant = 1, .open = true});
  EXPECT_EQ(0U, usage.on(0).open);
  EXPECT_EQ(4096U, usage.by_tenant()[1].stays());
  usage.counted_anew({.object = 6, .bytes = 4096, .kept = false, .tenant = 2, .open = true});
  EXPECT_EQ(4096U, usage.on(0).open);
  EXPECT_EQ(0U, usage.by_tenant()[1].all());
  EXPECT_EQ(4096U, usage.by_tenant()[2].open);
  usage.closed(6);
  EXPECT_EQ(0U, usage.on(0).open);
  EXPECT_EQ(4096U, usage.on(0).evictable);
  EXPECT_EQ(0U, usage.by_tenant()[2].stays());
}

TEST(Usage, WhatIsWrittenWhileItIsOpenIsOpenAgainWithItsSeal) {
  Usage usage(1);
  start_empty(usage);
  usage.sealed(5, copy(6, 4096));
  usage.opened(copy(6, 4096));
  usage.unsealed(5, copy(6, 4096));
  EXPECT_EQ(0U, usage.on(0).open);
  EXPECT_EQ(4096U, usage.on(0).live);
  usage.sealed(5, {.object = 6, .bytes = 8192, .open = true});
  EXPECT_EQ(8192U, usage.on(0).open);
  usage.nameless(5, copy(6, 8192), true);
  EXPECT_EQ(0U, usage.on(0).open);
  EXPECT_EQ(8192U, usage.on(0).all());
}

TEST(Usage, WhatIsMappedWithoutANameIsItsTenants) {
  Usage usage(1);
  start_empty(usage);
  usage.sealed(5, copy(6, 4096, false, 1));
  usage.nameless(5, copy(6, 4096, false, 1), false);
  EXPECT_TRUE(usage.still_leaving().empty());
  const auto still = usage.still_leaving();
  ASSERT_EQ(1U, still.size());
  EXPECT_EQ(std::pair(InodeNumber{5}, ObjectId{6}), still[0]);
  usage.mapped(6);
  usage.mapped(6);
  EXPECT_TRUE(usage.still_leaving().empty());
  EXPECT_EQ(0U, usage.on(0).leaving);
  EXPECT_EQ(4096U, usage.by_tenant()[1].stays());
  usage.reaped(5, 6);
  EXPECT_EQ(0U, usage.on(0).all());
  EXPECT_EQ(0U, usage.by_tenant()[1].all());
}

TEST(Usage, WhatARewriteReplacesStaysUntilTheNewOneIsPublished) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.sealed(5, copy(6, 4096));
  usage.replaced(5, 6, copy(6, 4096));
  usage.made(5, 0, 0);
  usage.measured(5, 8192);
  EXPECT_EQ(0U, usage.on(0).leaving);
  EXPECT_EQ(12288U, usage.on(0).live);
  usage.let_go(6);
  EXPECT_EQ(4096U, usage.on(0).leaving);
  EXPECT_EQ(8192U, usage.on(0).live);
  usage.reaped_object(6);
  EXPECT_EQ(8192U, usage.on(0).all());
}

TEST(Usage, SoDoesWhatWasNotSealed) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.measured(5, 4096);
  usage.replaced(5, 6, std::nullopt);
  usage.made(5, 0, 0);
  EXPECT_EQ(4096U, usage.on(0).live);
  usage.let_go(6);
  usage.reaped_object(6);
  EXPECT_EQ(0U, usage.on(0).all());
}

TEST(Usage, ARewriteIsTakenBack) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.sealed(5, copy(6, 4096));
  usage.replaced(5, 6, copy(6, 4096));
  usage.made(5, 0, 0);
  usage.measured(5, 100);
  usage.taken_back(5, 7, 6, copy(6, 4096));
  EXPECT_EQ(4096U, usage.on(0).evictable);
  EXPECT_EQ(0U, usage.on(0).live);
  EXPECT_EQ(100U, usage.on(0).leaving);
  usage.reaped_object(7);
  EXPECT_EQ(4096U, usage.on(0).all());
  usage.unsealed(5, copy(6, 4096));
  usage.replaced(5, 6, std::nullopt);
  usage.made(5, 0, 0);
  usage.taken_back(5, 8, 6, std::nullopt);
  EXPECT_EQ(4096U, usage.on(0).live);
}

TEST(Usage, WhatIsToldLaterIsCountedAnew) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.sealed(5, copy(6, 4096));
  EXPECT_FALSE(usage.is_counted_wrong(6, {}));
  EXPECT_TRUE(usage.is_counted_wrong(6, {.kept = true, .tenant = 0}));
  usage.counted_anew(copy(6, 4096, true));
  EXPECT_FALSE(usage.is_counted_wrong(6, {.kept = true, .tenant = 0}));
  EXPECT_EQ(4096U, usage.on(0).kept);
  EXPECT_EQ(0U, usage.on(0).evictable);
  usage.nameless(5, copy(6, 4096), false);
  EXPECT_EQ(0U, usage.on(0).kept);
}

TEST(Usage, AWriterMakesItLiveAgain) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 0);
  usage.sealed(5, copy(6, 4096));
  usage.unsealed(5, copy(6, 4096));
  usage.measured(5, 16384);
  EXPECT_EQ(0U, usage.on(0).evictable);
  EXPECT_EQ(16384U, usage.on(0).live);
  EXPECT_EQ(16384U, usage.on(0).written);
}

TEST(Usage, WhoTakesItAwayNeedNotKnowWhatItWasCountedAs) {
  Usage usage(1);
  start_empty(usage);
  usage.sealed(5, copy(6, 100, true));
  usage.sealed(7, copy(8, 10, true, 3));
  usage.sealed(9, copy(10, 1, false, 3));
  EXPECT_EQ(110U, usage.on(0).kept);
  EXPECT_EQ(1U, usage.on(0).evictable);
  EXPECT_EQ(10U, usage.by_tenant()[3].kept);
  EXPECT_EQ(1U, usage.by_tenant()[3].evictable);
  EXPECT_EQ(100U, usage.by_tenant()[0].all());
  usage.nameless(7, copy(8, 10), false);
  EXPECT_EQ(100U, usage.on(0).kept);
  EXPECT_EQ(1U, usage.by_tenant()[3].all());
  usage.nameless(9, copy(10, 1), true);  // open: still its bytes
  EXPECT_EQ(1U, usage.by_tenant()[3].live);
}

TEST(Usage, ATenantsBytesAreItsOwnFromTheMakingOn) {
  Usage usage(1);
  start_empty(usage);
  usage.made(5, 0, 2);
  usage.measured(5, 4096);
  EXPECT_EQ(4096U, usage.by_tenant()[2].live);
  usage.set_tenant(5, 4);
  EXPECT_EQ(0U, usage.by_tenant()[2].live);
  EXPECT_EQ(4096U, usage.by_tenant()[4].live);
  usage.sealed(5, copy(6, 8192, false, 4));
  EXPECT_EQ(8192U, usage.by_tenant()[4].evictable);
  EXPECT_EQ(8192U, usage.by_tenant()[4].all());
  usage.counted_anew(copy(6, 8192, false, 1));
  EXPECT_EQ(0U, usage.by_tenant()[4].all());
  EXPECT_EQ(8192U, usage.by_tenant()[1].all());
  usage.unsealed(5, copy(6, 8192));
  EXPECT_EQ(8192U, usage.by_tenant()[1].live);
}

TEST(Usage, AWalkCountsWhatWasThereAndStepsCountOnce) {
  Usage usage(1);
  usage.begin_walk(100);
  EXPECT_FALSE(usage.on(0).complete);
  usage.walked(copy(10, 1000));
  // Before the front: its step counts. Beyond: the walk will not meet it as it was.
  usage.nameless(1, copy(10, 1000), false);
  usage.unsealed(2, copy(20, 500));
  usage.walked(copy(30, 7));
  usage.passed(50);
  usage.sealed(2, copy(20, 600));
  usage.sealed(60, copy(101, 9));
  usage.end_walk();
  const UsageSums sums = usage.on(0);
  EXPECT_TRUE(sums.complete);
  EXPECT_EQ(616U, sums.evictable);
  EXPECT_EQ(0U, sums.live);
  EXPECT_EQ(1000U, sums.leaving);
}

TEST(Usage, WhatTheLastRunSaidHoldsUntilItIsCounted) {
  Usage usage(2);
  usage.begin_walk(100);
  EXPECT_FALSE(usage.on(0).known);
  usage.believe({50'000, 7'000});
  EXPECT_TRUE(usage.on(0).known);
  EXPECT_FALSE(usage.on(0).complete);
  EXPECT_EQ(50'000U, usage.on(0).all());
  EXPECT_EQ(7'000U, usage.on(1).all());
  // One of before goes, and a new one comes.
  usage.nameless(5, copy(6, 10'000), false);
  EXPECT_EQ(50'000U, usage.on(0).all()) << "it is leaving";
  usage.reaped(5, 6);
  EXPECT_EQ(40'000U, usage.on(0).all());
  usage.made(101, 0, 0);
  usage.sealed(101, copy(102, 4'096));
  EXPECT_EQ(44'096U, usage.on(0).all());
  usage.walked(copy(7, 39'000));
  EXPECT_EQ(44'096U, usage.on(0).all());
  usage.end_walk();
  EXPECT_EQ(0U, usage.on(0).believed);
  EXPECT_EQ(43'096U, usage.on(0).all()) << "what was said is forgotten";
}

TEST(Usage, AnotherWalkTakesTheFirstOnesPlace) {
  Usage usage(1);
  start_empty(usage);
  usage.sealed(1, copy(2, 100));
  usage.sealed(3, copy(4, 50));
  usage.begin_walk(10);
  usage.walked(copy(2, 100, true));
  EXPECT_EQ(150U, usage.on(0).evictable);
  usage.sealed(11, copy(12, 5));
  usage.walked(copy(4, 50));
  usage.end_walk();
  EXPECT_EQ(55U, usage.on(0).evictable);
  EXPECT_EQ(100U, usage.on(0).kept);
}

}  // namespace
}  // namespace kvcachefs
