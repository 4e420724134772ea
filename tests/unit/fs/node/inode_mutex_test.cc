// A lock that is lent to who only looks.
#include "fs/node/inode_mutex.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace kvcachefs::testing {
namespace {

TEST(InodeMutex, IsHeldByOneAtATime) {
  InodeMutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, looks = i % 2 == 0] {
      for (int n = 0; n < 20'000; ++n) {
        looks ? mutex.lock_to_look() : mutex.lock();
        ++count;
        if (!looks && n % 3 == 0) {
          const Lent lent(mutex);
        }
        mutex.unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(80'000, count);
}

TEST(InodeMutex, IsLentToWhoLooksAlone) {
  InodeMutex mutex;
  mutex.lock();
  EXPECT_FALSE(mutex.try_lock_to_look());
  {
    const Lent lent(mutex);
    EXPECT_FALSE(mutex.try_lock());
    ASSERT_TRUE(mutex.try_lock_to_look());
    EXPECT_FALSE(mutex.try_lock_to_look()) << "one at a time";
    EXPECT_FALSE(mutex.try_lock());
    mutex.unlock();
    EXPECT_FALSE(mutex.try_lock()) << "its holder has it still";
  }
  EXPECT_FALSE(mutex.try_lock_to_look());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
}

TEST(InodeMutex, IsTakenBackWhenNobodyLooksAnyMore) {
  InodeMutex mutex;
  int seen = 0;
  mutex.lock();
  std::thread looker;
  {
    const Lent lent(mutex);
    mutex.lock_to_look();
    looker = std::thread([&] {
      seen = 1;
      mutex.unlock();
    });
  }
  EXPECT_EQ(1, seen);
  mutex.unlock();
  looker.join();
}

}  // namespace
}  // namespace kvcachefs::testing
