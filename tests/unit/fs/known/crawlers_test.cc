// Which processes count as such that list directories, and for how long.
#include "fs/known/crawlers.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvcachefs {
namespace {

constexpr std::int64_t kSecondOfCrawlers = 1'000'000'000;
constexpr std::int64_t kStartOfCrawlers = 1000 * kSecondOfCrawlers;
const order::Caller kFind{.tid = 31, .process = 30};
const order::Caller kFindsThread{.tid = 32, .process = 30};
const order::Caller kRuntime{.tid = 41, .process = 40};
const order::Caller kInvisible{.tid = 51, .process = 0};
const order::Caller kOtherInvisible{.tid = 52, .process = 0};

TEST(Crawlers, AProcessThatListsCountsForAMinute) {
  Crawlers crawlers;
  EXPECT_FALSE(crawlers.any(kStartOfCrawlers));
  crawlers.listed(kFind, kStartOfCrawlers);
  EXPECT_TRUE(crawlers.any(kStartOfCrawlers));
  EXPECT_TRUE(crawlers.has(kFindsThread, kStartOfCrawlers + 59 * kSecondOfCrawlers));
  EXPECT_FALSE(crawlers.has(kRuntime, kStartOfCrawlers));
  EXPECT_FALSE(crawlers.has(kFind, kStartOfCrawlers + 60 * kSecondOfCrawlers));
  EXPECT_FALSE(crawlers.any(kStartOfCrawlers + 60 * kSecondOfCrawlers));
}

TEST(Crawlers, AnInvisibleThreadCountsForASecond) {
  Crawlers crawlers;
  crawlers.listed(kInvisible, kStartOfCrawlers);
  const auto opening = crawlers.opened(kOtherInvisible, kStartOfCrawlers);
  EXPECT_TRUE(crawlers.has(kInvisible, kStartOfCrawlers));
  EXPECT_TRUE(crawlers.has(kOtherInvisible, kStartOfCrawlers));
  EXPECT_FALSE(crawlers.has(kInvisible, kStartOfCrawlers + kSecondOfCrawlers));
  EXPECT_FALSE(crawlers.has(kOtherInvisible, kStartOfCrawlers + kSecondOfCrawlers));
  crawlers.closed(opening);
}

TEST(Crawlers, AProcessThatHasOpenWhatItMayListUnseenCountsAtOnceAndAfterItsClose) {
  Crawlers crawlers;
  const auto opening = crawlers.opened(kFind, kStartOfCrawlers);
  EXPECT_TRUE(crawlers.any(kStartOfCrawlers));
  EXPECT_TRUE(crawlers.has(kFind, kStartOfCrawlers));
  crawlers.closed(opening);
  EXPECT_TRUE(crawlers.has(kFind, kStartOfCrawlers + 59 * kSecondOfCrawlers));
  EXPECT_FALSE(crawlers.has(kFind, kStartOfCrawlers + 60 * kSecondOfCrawlers));
}

TEST(Crawlers, AProcessThatHoldsADirectoryOpenCountsForAMinuteOnly) {
  Crawlers crawlers;
  const auto opening = crawlers.opened(kRuntime, kStartOfCrawlers);
  EXPECT_FALSE(crawlers.has(kRuntime, kStartOfCrawlers + 60 * kSecondOfCrawlers));
  crawlers.closed(opening);
  EXPECT_FALSE(crawlers.has(kRuntime, kStartOfCrawlers + 61 * kSecondOfCrawlers));
}

TEST(Crawlers, AProcessThatSyncsWhatItHasOpenCountsNoMore) {
  Crawlers crawlers;
  EXPECT_EQ(0, crawlers.withdrawn(crawlers.opened(kRuntime, kStartOfCrawlers)));
  EXPECT_FALSE(crawlers.has(kRuntime, kStartOfCrawlers));
}

TEST(Crawlers, ASyncTakesBackWhatItsOwnOpenHasSaidAlone) {
  Crawlers crawlers;
  crawlers.listed(kFind, kStartOfCrawlers);
  EXPECT_EQ(
      kStartOfCrawlers + 60 * kSecondOfCrawlers,
      crawlers.withdrawn(crawlers.opened(kFind, kStartOfCrawlers + 10 * kSecondOfCrawlers)));
  EXPECT_TRUE(crawlers.has(kFind, kStartOfCrawlers + 59 * kSecondOfCrawlers));
  EXPECT_FALSE(crawlers.has(kFind, kStartOfCrawlers + 61 * kSecondOfCrawlers));
}

TEST(Crawlers, SeveralThatAreOpenAtATimeAreTakenBackInAnyOrder) {
  for (const bool in_order : {true, false}) {
    Crawlers crawlers;
    const auto first = crawlers.opened(kRuntime, kStartOfCrawlers);
    const auto second = crawlers.opened(kRuntime, kStartOfCrawlers + kSecondOfCrawlers);
    crawlers.withdrawn(in_order ? first : second);
    EXPECT_TRUE(crawlers.has(kRuntime, kStartOfCrawlers + kSecondOfCrawlers))
        << "the other may list";
    EXPECT_EQ(0, crawlers.withdrawn(in_order ? second : first));
    EXPECT_FALSE(crawlers.has(kRuntime, kStartOfCrawlers + kSecondOfCrawlers));
  }
}

TEST(Crawlers, OfTooManyTheOneThatIsOverFirstIsForgotten) {
  Crawlers crawlers;
  crawlers.listed(kFind, kStartOfCrawlers);
  for (std::uint32_t process = 100; process < 100 + 4096; ++process)
    crawlers.listed({.tid = process, .process = process}, kStartOfCrawlers + kSecondOfCrawlers);
  EXPECT_FALSE(crawlers.has(kRuntime, kStartOfCrawlers + kSecondOfCrawlers));
  EXPECT_FALSE(crawlers.has(kFind, kStartOfCrawlers + kSecondOfCrawlers));
  EXPECT_TRUE(crawlers.has({.tid = 100, .process = 100}, kStartOfCrawlers + kSecondOfCrawlers));
  crawlers.listed(kFind, kStartOfCrawlers + 2 * kSecondOfCrawlers);
  EXPECT_TRUE(crawlers.has(kFind, kStartOfCrawlers + 2 * kSecondOfCrawlers));
}

TEST(Crawlers, DirectoriesThatAreHeldOpenForEverTakeNoPlaceFromOthers) {
  Crawlers crawlers;
  std::vector<Crawlers::Opening> held;
  for (std::uint32_t process = 100; process < 100 + 4096; ++process)
    held.push_back(crawlers.opened({.tid = process, .process = process}, kStartOfCrawlers));
  const std::int64_t later = kStartOfCrawlers + 61 * kSecondOfCrawlers;
  crawlers.listed(kFind, later);
  EXPECT_FALSE(crawlers.has(kRuntime, later));
  EXPECT_TRUE(crawlers.has(kFind, later));
  for (const Crawlers::Opening& opening : held) crawlers.closed(opening);
  EXPECT_TRUE(crawlers.has(kFind, later));
  EXPECT_FALSE(crawlers.has({.tid = 100, .process = 100}, later));
}

}  // namespace
}  // namespace kvcachefs
