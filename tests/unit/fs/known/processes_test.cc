// Which process a thread belongs to.
#include "fs/known/processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <thread>

namespace kvcachefs {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(Processes, KnowAThreadsProcess) {
  const auto processes = std::make_unique<Processes>();
  const auto self = static_cast<std::uint32_t>(::getpid());
  EXPECT_EQ(self, processes->caller(::gettid(), kSecond).process);
  pid_t thread = 0;
  std::thread([&] {
    thread = ::gettid();
    const order::Caller caller = processes->caller(thread, kSecond);
    EXPECT_EQ(static_cast<std::uint32_t>(thread), caller.tid);
    EXPECT_EQ(self, caller.process);
  }).join();
  // Believed for some seconds, and then asked again.
  EXPECT_EQ(self, processes->caller(thread, 5 * kSecond).process);
  EXPECT_EQ(0u, processes->caller(thread, 7 * kSecond).process);
}

TEST(Processes, DoNotKnowWhoIsNotThere) {
  const auto processes = std::make_unique<Processes>();
  EXPECT_EQ(0u, processes->caller(0, kSecond).process);
  EXPECT_EQ(0u, processes->caller(0, kSecond).tid);
  EXPECT_EQ(0u, processes->caller(-1, kSecond).process);
  // Linux gives no number above 4,194,304.
  EXPECT_EQ(0u, processes->caller(5'000'000, kSecond).process);
}

TEST(Processes, TellThreadsOfOneSlotApart) {
  const auto processes = std::make_unique<Processes>();
  const auto self = static_cast<std::uint32_t>(::getpid());
  // 16 shards of 256 slots: these share one.
  const pid_t other = ::gettid() + 16 * 256 * 2000;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(self, processes->caller(::gettid(), kSecond).process);
    EXPECT_EQ(0u, processes->caller(other, kSecond).process);
  }
}

}  // namespace
}  // namespace kvcachefs
