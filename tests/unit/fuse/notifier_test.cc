#include "fs/fuse/notifier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace kvcachefs {
namespace {

// A kernel that notes what it is told, and can be made to hold the sender up.
class FakeKernel {
 public:
  void tell(const Notification& notification) {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    told_.push_back(notification);
  }
  void hold() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void let_go() {
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool wait_until_somebody_is_held() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [this] { return inside_ > 0; });
  }
  std::vector<Notification> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int inside_ = 0;
  std::vector<Notification> told_;
};

TEST(Notifier, SendsInOrderAndAllBeforeItStops) {
  FakeKernel kernel;
  Notifier notifier([&kernel](const Notification& what) { kernel.tell(what); });
  notifier.start();
  notifier.post({.inode = 1, .name = "a"});
  notifier.post({.inode = 2, .name = {}});
  notifier.post({.inode = 1, .name = "b"});
  notifier.stop();
  EXPECT_EQ(kernel.told(), (std::vector<Notification>{{1, "a"}, {2, ""}, {1, "b"}}));
}

TEST(Notifier, BeforeTheStartAndAfterTheStopNobodyIsTold) {
  FakeKernel kernel;
  Notifier notifier([&kernel](const Notification& what) { kernel.tell(what); });
  notifier.post({.inode = 1, .name = "early"});
  notifier.start();
  notifier.stop();
  notifier.post({.inode = 1, .name = "late"});
  EXPECT_TRUE(kernel.told().empty());
}

TEST(Notifier, WhatIsAcceptedWaitsForTheStart) {
  FakeKernel kernel;
  Notifier notifier([&kernel](const Notification& what) { kernel.tell(what); });
  notifier.accept();
  notifier.post({.inode = 1, .name = {}});
  EXPECT_TRUE(kernel.told().empty());
  notifier.start();
  notifier.stop();
  EXPECT_EQ(kernel.told(), (std::vector<Notification>{{1, ""}}));
}

TEST(Notifier, WithoutAStartNobodyIsToldAtTheStop) {
  FakeKernel kernel;
  Notifier notifier([&kernel](const Notification& what) { kernel.tell(what); });
  notifier.accept();
  notifier.post({.inode = 1, .name = {}});
  notifier.stop();
  EXPECT_TRUE(kernel.told().empty());
}

TEST(Notifier, RepetitionsAreSentOnce) {
  FakeKernel kernel;
  kernel.hold();
  Notifier notifier([&kernel](const Notification& what) { kernel.tell(what); });
  notifier.start();
  notifier.post({.inode = 9, .name = {}});
  ASSERT_TRUE(kernel.wait_until_somebody_is_held());
  for (int i = 0; i < 100; ++i) notifier.post({.inode = 1, .name = "a"});
  kernel.let_go();
  notifier.stop();
  EXPECT_EQ(kernel.told(), (std::vector<Notification>{{9, ""}, {1, "a"}}));
}

TEST(Notifier, AFullQueueDropsTheOldestAndCounts) {
  FakeKernel kernel;
  kernel.hold();
  Notifier notifier([&kernel](const Notification& what) { kernel.tell(what); });
  notifier.start();
  notifier.post({.inode = 1'000'000, .name = {}});
  ASSERT_TRUE(kernel.wait_until_somebody_is_held());
  constexpr std::size_t kExtra = 3;
  for (InodeNumber inode = 0; inode < Notifier::kQueueLimit + kExtra; ++inode) {
    notifier.post({.inode = inode, .name = {}});
  }
  EXPECT_EQ(notifier.dropped(), kExtra);
  kernel.let_go();
  notifier.stop();
  const std::vector<Notification> told = kernel.told();
  ASSERT_EQ(told.size(), Notifier::kQueueLimit + 1);
  EXPECT_EQ(told[1].inode, kExtra);
  EXPECT_EQ(told.back().inode, Notifier::kQueueLimit + kExtra - 1);
}

}  // namespace
}  // namespace kvcachefs
