// Who calls, where only /proc says it.
#include "fs/fuse/caller_ids.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <thread>

namespace kvcachefs {
namespace {

TEST(CallerIds, AreThoseOfTheFilesystemOfAThread) {
  EXPECT_EQ((CallerIds::Ids{.uid = ::geteuid(), .gid = ::getegid()}),
            CallerIds::of_process(::getpid()));
  std::thread other([] {
    ::setfsgid(2345);
    ::setfsuid(1234);
    EXPECT_EQ((CallerIds::Ids{.uid = 1234, .gid = 2345}), CallerIds::of_process(::gettid()));
  });
  other.join();
}

TEST(CallerIds, WhoIsNotVisibleIsNobody) {
  CallerIds ids;
  EXPECT_EQ(CallerIds::Ids{}, ids.of(0));
  EXPECT_EQ(CallerIds::Ids{}, CallerIds::of_process(1 << 30));
}

TEST(CallerIds, AreAskedForAnewAfterAWhile) {
  uid_t uid = 7;
  int asked = 0;
  CallerIds ids([&](pid_t) {
    ++asked;
    return CallerIds::Ids{.uid = uid, .gid = 1};
  });
  const CallerIds::Clock::time_point begin{};
  EXPECT_EQ(7U, ids.of(3, begin).uid);
  uid = 8;
  EXPECT_EQ(7U, ids.of(3, begin + CallerIds::kTrusted / 2).uid);
  EXPECT_EQ(8U, ids.of(4, begin).uid);
  EXPECT_EQ(8U, ids.of(3, begin + CallerIds::kTrusted).uid);
  EXPECT_EQ(3, asked);
}

TEST(CallerIds, AreBoundedInNumber) {
  int asked = 0;
  CallerIds ids([&](pid_t) {
    ++asked;
    return CallerIds::Ids{};
  });
  const CallerIds::Clock::time_point begin{};
  for (pid_t thread = 1; thread <= 10 * static_cast<pid_t>(CallerIds::kMost); ++thread)
    ids.of(thread, begin);
  ids.of(10 * static_cast<pid_t>(CallerIds::kMost), begin);
  EXPECT_EQ(10 * static_cast<int>(CallerIds::kMost), asked);
}

}  // namespace
}  // namespace kvcachefs
