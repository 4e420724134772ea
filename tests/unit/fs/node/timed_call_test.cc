// Calls that may not come back.
#include "fs/node/timed_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace kvcachefs::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(TimedCall, GivesWhatTheCallGives) {
  FairPool threads("timed", {.each = 1, .most = 1, .queue = 4});
  const auto never = [](Result<int>) { ADD_FAILURE(); };
  const Result<int> done = call_within<int>(
      threads, 1, seconds{60}, [] { return Result<int>(5); }, never);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(5, *done);
  const Result<int> failed = call_within<int>(
      threads, 1, seconds{60}, []() -> Result<int> { return fail(EIO, "disk"); }, never);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(EIO, failed.error().code);
}

TEST(TimedCall, GoesOnWithoutOneThatDoesNotComeBack) {
  std::promise<void> opens;
  std::shared_future<void> gate = opens.get_future().share();
  std::promise<int> late;
  std::atomic<int> calls{0};
  FairPool threads("timed", {.each = 1, .most = 1, .queue = 1});
  const auto stuck = [&]() -> Result<int> {
    calls.fetch_add(1);
    gate.wait();
    return 7;
  };
  const Result<int> first =
      call_within<int>(threads, 1, milliseconds{20}, stuck,
                       [&](Result<int> result) { late.set_value(*result); });
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(ETIMEDOUT, first.error().code);
  // It waits behind the first, and is not made any more when its turn comes.
  const Result<int> second =
      call_within<int>(threads, 1, milliseconds{20}, stuck, [](Result<int>) { ADD_FAILURE(); });
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(EAGAIN, second.error().code);
  const Result<int> third =
      call_within<int>(threads, 1, milliseconds{20}, stuck, [](Result<int>) { ADD_FAILURE(); });
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(EAGAIN, third.error().code);
  opens.set_value();
  EXPECT_EQ(7, late.get_future().get());
  threads.drain();
  EXPECT_EQ(1, calls.load());
}

TEST(TimedCall, IsGivenUpWhenItIsWaitedForInVain) {
  std::promise<void> opens;
  std::shared_future<void> gate = opens.get_future().share();
  std::promise<int> late;
  FairPool threads("timed", {.each = 1, .most = 1, .queue = 1});
  int looks = 0;
  const Result<int> given_up = call_within<int>(
      threads, 1, seconds{3600},
      [&]() -> Result<int> {
        gate.wait();
        return 7;
      },
      [&](Result<int> result) { late.set_value(*result); }, [&] { return ++looks == 3; });
  ASSERT_FALSE(given_up.ok());
  EXPECT_TRUE(given_up.error().code == ETIMEDOUT || given_up.error().code == EAGAIN);
  EXPECT_EQ(3, looks);
  opens.set_value();
  if (given_up.error().code == ETIMEDOUT) {
    EXPECT_EQ(7, late.get_future().get());
  }
}

TEST(TimedCall, RunsBesideOthersUntilItIsWaitedFor) {
  std::promise<int> told;
  FairPool threads("timed", {.each = 1, .most = 2, .queue = 4});
  const auto never = [](Result<int>) { ADD_FAILURE(); };
  TimedCall<int> first(
      threads, 1, [&] { return Result<int>(told.get_future().get()); }, never);
  TimedCall<int> second(
      threads, 2,
      [&] {
        told.set_value(5);
        return Result<int>(6);
      },
      never);
  const auto deadline = std::chrono::steady_clock::now() + seconds{60};
  const Result<int> of_first = first.until(deadline);
  ASSERT_TRUE(of_first.ok());
  EXPECT_EQ(5, *of_first);
  const Result<int> of_second = second.until(deadline);
  ASSERT_TRUE(of_second.ok());
  EXPECT_EQ(6, *of_second);
}

}  // namespace
}  // namespace kvcachefs::testing
