// When the kernel may remember a listing, and when it is told to forget one.
#include "fs/node/kernel_listings.h"

#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

constexpr InodeNumber kListedDirectory = 7;
constexpr std::int64_t kSecondOfListings = 1'000'000'000;

class ListingMessages : public KernelNotifications {
 public:
  void invalidate_entry(InodeNumber, std::string) override {}
  void invalidate_attributes(InodeNumber) override {}
  void invalidate_attributes_at_once(InodeNumber) override {}
  void invalidate_data(InodeNumber) override {}
  void drop_listing(InodeNumber directory, std::uint64_t ticket) override {
    EXPECT_EQ(kListedDirectory, directory);
    const std::lock_guard lock(mutex_);
    tickets.push_back(ticket);
  }
  std::vector<std::uint64_t> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(tickets, {});
  }
  std::vector<std::uint64_t> tickets;

 private:
  std::mutex mutex_;
};

class KernelListingsTest : public ::testing::Test {
 protected:
  KernelListings::Grant open(ListingReader& reader) {
    return listings_.opened(reader, kListedDirectory, changes_, now_);
  }
  bool reads(ListingReader& reader, std::uint64_t after) {
    return listings_.reads(reader, after, changes_, now_);
  }
  // The kernel asks for what follows the last name.
  ListingEnd end(ListingReader& reader) {
    EXPECT_TRUE(reads(reader, 100));
    return listings_.ended(reader, changes_, now_);
  }
  // A reader that comes and goes, and lists everything unless the kernel does.
  KernelListings::Grant list() {
    ListingReader reader;
    const KernelListings::Grant grant = open(reader);
    if (!grant.is_unseen) {
      reads(reader, 0);
      end(reader);
    }
    listings_.closed(reader);
    return grant;
  }
  void change() { const KernelListings::Change change(listings_, kListedDirectory); }
  // The kernel takes the messages; how many there were.
  std::size_t deliver() {
    const auto tickets = messages_.take();
    for (const std::uint64_t ticket : tickets) listings_.dropped(kListedDirectory, ticket);
    return tickets.size();
  }

  ListingMessages messages_;
  KernelListings listings_{&messages_};
  std::uint64_t changes_ = 5;
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
  reads(reader, 0);
  listings_.closed(reader);
  EXPECT_FALSE(list().is_unseen);
  EXPECT_TRUE(list().is_unseen);
}

TEST_F(KernelListingsTest, AfterAChangeThroughTheKernelItAsksOnce) {
  list();
  ++changes_;
  const KernelListings::Grant after = list();
  EXPECT_TRUE(after.remembers);
  EXPECT_FALSE(after.is_unseen);
  EXPECT_TRUE(list().is_unseen);
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

// An answer from before the change may arrive after the first page has gone.
TEST_F(KernelListingsTest, WhatTheDaemonChangesDuringAListingIsNotRemembered) {
  ListingReader reader;
  open(reader);
  reads(reader, 0);
  change();
  EXPECT_EQ(ListingEnd::kWaits, end(reader));
  EXPECT_EQ(1u, deliver());
  EXPECT_EQ(ListingEnd::kEmpty, listings_.end_now(reader, now_));
  listings_.closed(reader);
  const KernelListings::Grant after = list();
  EXPECT_TRUE(after.remembers);
  EXPECT_FALSE(after.is_unseen) << "its first page is gone";
  EXPECT_TRUE(list().is_unseen);
}

TEST_F(KernelListingsTest, ASingleReaderNeedsNoMessageForAChangeThroughTheKernel) {
  ListingReader reader;
  open(reader);
  reads(reader, 0);
  ++changes_;
  EXPECT_EQ(ListingEnd::kEmpty, end(reader));
  listings_.closed(reader);
  EXPECT_EQ(0u, messages_.tickets.size());
  EXPECT_FALSE(list().is_unseen);
}

class TwoReadersTest : public KernelListingsTest {
 protected:
  TwoReadersTest() {
    open(first_);
    open(second_);
    reads(first_, 0);
  }
  ListingReader first_;
  ListingReader second_;
};

TEST_F(TwoReadersTest, NoneEndsItForTheOtherWhileThatIsBeingAnswered) {
  reads(second_, 0);
  EXPECT_EQ(ListingEnd::kShort, end(first_));
  EXPECT_EQ(ListingEnd::kEmpty, end(second_)) << "the last one does";
  listings_.closed(first_);
  listings_.closed(second_);
  EXPECT_TRUE(list().is_unseen);
}

TEST_F(TwoReadersTest, OneThatHasStoppedInTheMiddleHoldsItBackUntilItCloses) {
  reads(second_, 0);
  reads(second_, 50);
  now_ += 10 * KernelListings::kEndingNanos;
  EXPECT_EQ(ListingEnd::kShort, end(first_));
  EXPECT_FALSE(list().remembers) << "nobody could complete it";
  listings_.closed(second_);
  EXPECT_TRUE(list().remembers);
}

TEST_F(TwoReadersTest, AChangeMeanwhileDropsWhatTheyHave) {
  ++changes_;
  EXPECT_EQ(ListingEnd::kWaits, end(first_));
  EXPECT_EQ(ListingEnd::kWaits, listings_.end_now(first_, now_));
  EXPECT_EQ(1u, deliver());
  EXPECT_EQ(ListingEnd::kEmpty, listings_.end_now(first_, now_));
  listings_.closed(first_);
  EXPECT_FALSE(list().is_unseen);
}

TEST_F(TwoReadersTest, NotIfTheOtherIsAnsweredBeforeThePageIsGone) {
  ++changes_;
  EXPECT_EQ(ListingEnd::kWaits, end(first_));
  EXPECT_FALSE(reads(second_, 0)) << "the end may come now";
  EXPECT_EQ(1u, deliver());
  EXPECT_EQ(ListingEnd::kShort, listings_.end_now(first_, now_));
  EXPECT_TRUE(listings_.may_begin(second_, now_)) << "it does not";
}

TEST_F(TwoReadersTest, NorIfTheMessageIsLost) {
  ++changes_;
  EXPECT_EQ(ListingEnd::kWaits, end(first_));
  now_ += KernelListings::kLostNanos;
  EXPECT_EQ(ListingEnd::kShort, listings_.end_now(first_, now_));
}

TEST_F(TwoReadersTest, WhoBeginsBeforeAnEndHasArrivedWaitsForItAndForAMessage) {
  EXPECT_EQ(ListingEnd::kEmpty, end(first_));
  ++changes_;
  EXPECT_FALSE(reads(second_, 0));
  EXPECT_EQ(0u, messages_.tickets.size());
  listings_.closed(first_);
  EXPECT_FALSE(listings_.may_begin(second_, now_));
  EXPECT_EQ(1u, deliver());
  EXPECT_TRUE(listings_.may_begin(second_, now_));
  EXPECT_EQ(ListingEnd::kEmpty, end(second_));
}

TEST_F(TwoReadersTest, OneThatStaysOpenAfterItsEndHoldsUpNobodyForLong) {
  EXPECT_EQ(ListingEnd::kEmpty, end(first_));
  ++changes_;
  EXPECT_FALSE(list().remembers) << "it would have to wait";
  EXPECT_FALSE(reads(second_, 0));
  now_ += KernelListings::kEndingNanos;
  EXPECT_FALSE(listings_.may_begin(second_, now_)) << "the message";
  now_ += KernelListings::kLostNanos;
  EXPECT_TRUE(listings_.may_begin(second_, now_));
}

TEST_F(TwoReadersTest, OneThatAsksAgainHasTakenItsEnd) {
  EXPECT_EQ(ListingEnd::kEmpty, end(first_));
  EXPECT_TRUE(reads(first_, 0)) << "it is its own";
  EXPECT_FALSE(reads(second_, 0));
  EXPECT_EQ(1u, deliver());
  EXPECT_TRUE(listings_.may_begin(second_, now_));
}

TEST_F(TwoReadersTest, ThreadsThatWaitAreWoken) {
  now_ = monotonic_now();
  EXPECT_EQ(ListingEnd::kEmpty, end(first_));
  ++changes_;
  EXPECT_FALSE(reads(second_, 0));
  std::thread waiting([this] { listings_.await_begin(second_); });
  listings_.closed(first_);
  while (deliver() == 0) std::this_thread::yield();
  waiting.join();
  change();
  EXPECT_EQ(ListingEnd::kWaits, end(second_));
  std::thread kernel([this] { EXPECT_LT(0u, deliver()); });
  EXPECT_EQ(ListingEnd::kEmpty, listings_.await_end(second_));
  kernel.join();
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
  EXPECT_FALSE(listings.opened(reader, kListedDirectory, 0, kSecondOfListings).remembers);
  EXPECT_TRUE(listings.reads(reader, 0, 0, kSecondOfListings));
  EXPECT_EQ(ListingEnd::kEmpty, listings.ended(reader, 0, kSecondOfListings));
  const KernelListings::Change change(listings, kListedDirectory);
  listings.closed(reader);
  EXPECT_EQ(0u, listings.size());
}

}  // namespace
}  // namespace kvcachefs
