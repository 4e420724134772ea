// When the kernel may remember a listing, and when it is told to forget one.
#include "fs/node/kernel_listings.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

constexpr InodeNumber kListedDirectory = 7;
constexpr UnixNanos kModified = 1000;
constexpr std::int64_t kSecondOfListings = 1'000'000'000;

class ListingMessages : public KernelNotifications {
 public:
  void invalidate_entry(InodeNumber, std::string) override {}
  void invalidate_attributes(InodeNumber) override {}
  void invalidate_data(InodeNumber) override {}
  void drop_listing(InodeNumber directory, std::uint64_t ticket) override {
    EXPECT_EQ(kListedDirectory, directory);
    tickets.push_back(ticket);
  }
  std::vector<std::uint64_t> tickets;
};

class KernelListingsTest : public ::testing::Test {
 protected:
  KernelListings::Grant open(ListingReader& reader, UnixNanos modified = kModified) {
    return listings_.opened(reader, kListedDirectory, modified, now_);
  }
  // From the beginning to the end.
  void read(ListingReader& reader, UnixNanos modified = kModified) {
    listings_.reads(reader, 0, modified);
    listings_.reads(reader, 50, 0);
    listings_.ended(reader);
  }
  // A reader that comes and goes, and lists everything unless the kernel does.
  KernelListings::Grant list(UnixNanos modified = kModified) {
    ListingReader reader;
    const KernelListings::Grant grant = open(reader, modified);
    if (!grant.is_unseen) read(reader, modified);
    listings_.closed(reader);
    return grant;
  }
  void change() { const KernelListings::Change change(listings_, kListedDirectory); }
  // The kernel takes the messages; how many there were.
  std::size_t deliver() {
    const auto tickets = std::exchange(messages_.tickets, {});
    for (const std::uint64_t ticket : tickets) listings_.dropped(kListedDirectory, ticket);
    return tickets.size();
  }

  ListingMessages messages_;
  KernelListings listings_{&messages_};
  std::int64_t now_ = 100 * kSecondOfListings;
};

TEST_F(KernelListingsTest, TheSecondListingIsUnseen) {
  const KernelListings::Grant first = list();
  EXPECT_TRUE(first.remembers);
  EXPECT_FALSE(first.is_unseen);
  const KernelListings::Grant second = list();
  EXPECT_TRUE(second.remembers);
  EXPECT_TRUE(second.is_unseen);
}

TEST_F(KernelListingsTest, AListingThatDidNotComeToItsEndIsNotUnseen) {
  ListingReader reader;
  open(reader);
  listings_.reads(reader, 0, kModified);
  listings_.closed(reader);
  EXPECT_FALSE(list().is_unseen);
  EXPECT_TRUE(list().is_unseen);
}

TEST_F(KernelListingsTest, AfterAChangeThroughTheKernelItAsksOnce) {
  list();
  const KernelListings::Grant after = list(kModified + 1);
  EXPECT_TRUE(after.remembers);
  EXPECT_FALSE(after.is_unseen);
  EXPECT_TRUE(list(kModified + 1).is_unseen);
  EXPECT_EQ(0u, deliver());
}

TEST_F(KernelListingsTest, NothingIsRememberedUntilTheKernelHasForgottenWhatTheDaemonChanged) {
  list();
  change();
  EXPECT_FALSE(list().remembers);
  EXPECT_FALSE(list().remembers);
  EXPECT_EQ(1u, deliver());
  const KernelListings::Grant after = list();
  EXPECT_TRUE(after.remembers);
  EXPECT_FALSE(after.is_unseen);
  EXPECT_TRUE(list().is_unseen);
}

TEST_F(KernelListingsTest, NothingIsRememberedDuringAChange) {
  list();
  std::optional<KernelListings::Change> change(std::in_place, listings_, kListedDirectory);
  EXPECT_FALSE(list().remembers);
  EXPECT_EQ(0u, messages_.tickets.size()) << "the kernel could list what is about to go";
  change.reset();
  EXPECT_EQ(1u, deliver());
  EXPECT_TRUE(list().remembers);
}

TEST_F(KernelListingsTest, AChangeOfWhatTheKernelHasNotListedCostsNoMessage) {
  change();
  EXPECT_EQ(0u, messages_.tickets.size());
  EXPECT_EQ(0u, listings_.size());
  ListingReader reader;
  open(reader);
  change();
  EXPECT_EQ(0u, messages_.tickets.size());
  listings_.closed(reader);
  EXPECT_EQ(0u, listings_.size());
}

TEST_F(KernelListingsTest, AChangeDuringTheMessageAsksForAnother) {
  list();
  change();
  change();
  EXPECT_EQ(1u, deliver()) << "one at a time";
  EXPECT_FALSE(list().remembers);
  EXPECT_EQ(1u, deliver());
  EXPECT_TRUE(list().remembers);
}

TEST_F(KernelListingsTest, TheMessageWaitsForAnswersThatTheKernelHasNotTaken) {
  list();
  ListingReader reader;
  open(reader);
  listings_.reads(reader, 0, kModified);
  change();
  EXPECT_EQ(0u, messages_.tickets.size());
  EXPECT_FALSE(list().remembers);
  listings_.reads(reader, 50, 0);
  EXPECT_EQ(0u, messages_.tickets.size());
  listings_.ended(reader);
  EXPECT_EQ(1u, deliver());
  EXPECT_FALSE(list().is_unseen);
  listings_.closed(reader);
}

TEST_F(KernelListingsTest, OrForTheEndOfItsReader) {
  list();
  ListingReader reader;
  open(reader);
  listings_.reads(reader, 0, kModified);
  change();
  listings_.closed(reader);
  EXPECT_EQ(1u, deliver());
  EXPECT_TRUE(list().remembers);
}

TEST_F(KernelListingsTest, NamesThatTheKernelTookBeforeTheMessageWasConfirmedAreNotOverlooked) {
  ListingReader reader;
  open(reader);
  read(reader);
  change();
  ASSERT_EQ(1u, messages_.tickets.size());
  read(reader);
  EXPECT_EQ(1u, deliver());
  change();
  EXPECT_EQ(1u, deliver());
  listings_.closed(reader);
}

TEST_F(KernelListingsTest, AMessageThatWasLostIsSentAgainByALaterOpen) {
  list();
  change();
  messages_.tickets.clear();
  EXPECT_FALSE(list().remembers);
  now_ += KernelListings::kLostNanos / 2;
  EXPECT_FALSE(list().remembers);
  EXPECT_EQ(0u, messages_.tickets.size());
  now_ += KernelListings::kLostNanos;
  EXPECT_FALSE(list().remembers);
  EXPECT_EQ(1u, deliver());
  EXPECT_TRUE(list().remembers);
}

// Else it could read what the second one has made the kernel remember, and nobody would know.
TEST_F(KernelListingsTest, AReaderThatHasJustComeIsTheOnlyOneThatMakesTheKernelRemember) {
  ListingReader first;
  EXPECT_TRUE(open(first).remembers);
  EXPECT_FALSE(list().remembers);
  listings_.reads(first, 0, kModified);
  EXPECT_FALSE(list().remembers);
  listings_.ended(first);
  EXPECT_TRUE(list().remembers);
  listings_.closed(first);
}

// The kernel has forgotten what the first one lists, and would add its answers to the second
// one's.
TEST_F(KernelListingsTest, WhatAnEarlierReaderStillGetsIsNotRemembered) {
  list();
  ListingReader first;
  ListingReader second;
  EXPECT_TRUE(open(first).is_unseen);
  EXPECT_TRUE(open(second).is_unseen);
  // A name comes through the kernel: both ask.
  listings_.reads(first, 0, kModified + 1);
  listings_.reads(second, 0, kModified + 1);
  EXPECT_FALSE(list(kModified + 1).remembers);
  EXPECT_EQ(0u, deliver());
  listings_.ended(second);
  EXPECT_EQ(0u, deliver());
  listings_.ended(first);
  EXPECT_EQ(1u, deliver());
  listings_.closed(first);
  listings_.closed(second);
  EXPECT_FALSE(list(kModified + 1).is_unseen);
  EXPECT_TRUE(list(kModified + 1).is_unseen);
}

TEST_F(KernelListingsTest, NorWhatOneGetsThatCouldHaveBegunUnseen) {
  list();
  now_ += 5 * kSecondOfListings;
  ListingReader first;
  EXPECT_TRUE(open(first).is_unseen);
  // A name comes through the kernel, then another one.
  listings_.reads(first, 0, kModified + 1);
  ListingReader second;
  EXPECT_FALSE(open(second, kModified + 2).remembers);
  listings_.closed(second);
  listings_.closed(first);
}

// The kernel may have begun the second one's before it had the first one's answer: it takes the
// first one's names for newer than they are.
TEST_F(KernelListingsTest, AReaderThatBeganUnseenBeforeAnotherEndedIsNoticed) {
  list();
  ListingReader first;
  ListingReader second;
  EXPECT_TRUE(open(first).is_unseen);
  EXPECT_TRUE(open(second).is_unseen);
  // A name comes, and the first one begins; then another one, and the second one begins.
  read(first, kModified + 1);
  EXPECT_EQ(0u, deliver());
  EXPECT_FALSE(list(kModified + 2).remembers);
  read(second, kModified + 2);
  EXPECT_EQ(1u, deliver());
  listings_.closed(first);
  listings_.closed(second);
  EXPECT_FALSE(list(kModified + 2).is_unseen);
  EXPECT_TRUE(list(kModified + 2).is_unseen);
}

TEST_F(KernelListingsTest, OrWasKilledBeforeItHadAsked) {
  list();
  ListingReader first;
  ListingReader second;
  EXPECT_TRUE(open(first).is_unseen);
  EXPECT_TRUE(open(second).is_unseen);
  read(first, kModified + 1);
  listings_.closed(first);
  EXPECT_EQ(0u, deliver());
  listings_.closed(second);
  EXPECT_EQ(1u, deliver());
}

TEST_F(KernelListingsTest, NothingIsUnseenWhileTheKernelListsAnew) {
  list();
  now_ += 5 * kSecondOfListings;
  ListingReader first;
  EXPECT_TRUE(open(first).is_unseen);
  listings_.reads(first, 0, kModified + 1);
  EXPECT_FALSE(list(kModified + 1).remembers);
  listings_.ended(first);
  EXPECT_TRUE(list(kModified + 1).is_unseen);
  listings_.closed(first);
}

TEST_F(KernelListingsTest, WhoWasToListUnseenHoldsLaterOnesBackWhenANameHasCome) {
  list();
  now_ += 5 * kSecondOfListings;
  ListingReader first;
  EXPECT_TRUE(open(first).is_unseen);
  EXPECT_TRUE(list().is_unseen);
  EXPECT_FALSE(list(kModified + 1).remembers);
  listings_.closed(first);
  EXPECT_TRUE(list(kModified + 1).remembers);
}

// Two names may come in one tick of the clock.
TEST_F(KernelListingsTest, AListingOfThisMomentIsNotTakenForThatOfTheNext) {
  const UnixNanos modified = file_clock_now();
  list(modified);
  ListingReader first;
  ListingReader second;
  EXPECT_TRUE(open(first, modified).is_unseen);
  listings_.reads(first, 0, modified);
  EXPECT_FALSE(open(second, modified).remembers);
  listings_.closed(second);
  listings_.closed(first);
}

TEST_F(KernelListingsTest, AReaderThatRewindsIsNoOther) {
  ListingReader first;
  EXPECT_TRUE(open(first).remembers);
  listings_.reads(first, 0, kModified);
  listings_.reads(first, 0, kModified);
  listings_.ended(first);
  EXPECT_EQ(0u, deliver());
  EXPECT_TRUE(list().is_unseen);
  listings_.closed(first);
}

TEST_F(KernelListingsTest, AReaderThatDoesNotReadHoldsUpNobodyForLong) {
  ListingReader first;
  open(first);
  now_ += KernelListings::kUnreadNanos;
  EXPECT_TRUE(list().remembers);
  EXPECT_TRUE(list().is_unseen);
  listings_.closed(first);
}

// The kernel has names of it that it has not added yet, however long that takes.
TEST_F(KernelListingsTest, ButOneThatIsReadingDoesUntilItsEnd) {
  ListingReader first;
  open(first);
  listings_.reads(first, 0, kModified);
  now_ += 10 * KernelListings::kUnreadNanos;
  EXPECT_FALSE(list(kModified + 1).remembers);
  listings_.ended(first);
  EXPECT_TRUE(list(kModified + 1).remembers);
  listings_.closed(first);
}

TEST_F(KernelListingsTest, WhatTheKernelForgetsWithTheDirectoryIsForgotten) {
  list();
  EXPECT_EQ(1u, listings_.size());
  listings_.forgotten(kListedDirectory, listings_.opens());
  EXPECT_EQ(0u, listings_.size());
  EXPECT_FALSE(list().is_unseen);
  const std::uint64_t opens = listings_.opens();
  list();
  listings_.forgotten(kListedDirectory, opens);
  EXPECT_TRUE(list().is_unseen) << "the kernel had found it again";
}

TEST_F(KernelListingsTest, AMessageAboutADirectoryThatIsGoneConfirmsNothing) {
  list();
  change();
  listings_.forgotten(kListedDirectory, listings_.opens());
  list();
  change();
  ASSERT_EQ(2u, messages_.tickets.size());
  listings_.dropped(kListedDirectory, messages_.tickets.front());
  EXPECT_FALSE(list().remembers);
}

TEST(KernelListings, WithoutAKernelToTellNothingIsRemembered) {
  KernelListings listings(nullptr);
  ListingReader reader;
  EXPECT_FALSE(
      listings.opened(reader, kListedDirectory, kModified, kSecondOfListings).remembers);
  listings.reads(reader, 0, kModified);
  listings.ended(reader);
  const KernelListings::Change change(listings, kListedDirectory);
  listings.closed(reader);
  EXPECT_EQ(0u, listings.size());
}

}  // namespace
}  // namespace kvcachefs
