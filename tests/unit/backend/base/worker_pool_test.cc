#include "backend/base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace kvcachefs {
namespace {

TEST(WorkerPool, RunsInOrderOfPostingWithOneThread) {
  std::vector<int> order;
  WorkerPool pool("test", 1, 100);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(pool.try_post([&order, i] { order.push_back(i); }));
  pool.drain();
  ASSERT_EQ(100u, order.size());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(i, order[static_cast<std::size_t>(i)]);
}

TEST(WorkerPool, RefusesWhatItsQueueCannotHold) {
  std::promise<void> started;
  std::promise<void> go_on;
  WorkerPool pool("test", 1, 2);
  ASSERT_TRUE(pool.try_post([&] {
    started.set_value();
    go_on.get_future().wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(pool.try_post([] {}));
  EXPECT_TRUE(pool.try_post([] {}));
  EXPECT_EQ(2u, pool.waiting());
  EXPECT_FALSE(pool.try_post([] {}));
  go_on.set_value();
  pool.drain();
  EXPECT_EQ(0u, pool.waiting());
  EXPECT_TRUE(pool.try_post([] {}));
}

TEST(WorkerPool, DrainWaitsForRunningTasks) {
  std::atomic<int> done{0};
  WorkerPool pool("test", 4, 1000);
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(pool.try_post([&done] { ++done; }));
  pool.drain();
  EXPECT_EQ(500, done);
}

TEST(WorkerPool, RunsWhatIsQueuedBeforeItEnds) {
  std::atomic<int> done{0};
  {
    WorkerPool pool("test", 2, 1000);
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(pool.try_post([&done] { ++done; }));
  }
  EXPECT_EQ(500, done);
}

TEST(WorkerPool, ATaskMayPostAnother) {
  std::atomic<int> done{0};
  WorkerPool pool("test", 2, 10);
  ASSERT_TRUE(pool.try_post([&] {
    ++done;
    EXPECT_TRUE(pool.try_post([&done] { ++done; }));
  }));
  pool.drain();
  EXPECT_EQ(2, done);
}

}  // namespace
}  // namespace kvcachefs
