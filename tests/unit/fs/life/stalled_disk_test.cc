// Disks that take no writes, or give nothing, and give no error: who looks is answered.
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/must_wait.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs::testing {
namespace {

// While it is closed whoever comes waits.
class Gate {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_closed_ = false;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    waiting_ += is_closed_ ? 1 : 0;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_closed_; });
  }
  void wait_for(int waiting) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= waiting; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  int waiting_ = 0;
};

// What a ring's thread does.
template <class Ask>
auto look(Ask ask) {
  const RefusesToWait here;
  return ask();
}

template <class T>
bool is_must_wait(const Result<T>& result) {
  return !result.ok() && result.error().code == kMustWait;
}

TEST(StalledDisk, WhatIsThereIsLookedAtWhileACommitWaits) {
  TestVolume volume;
  const InodeNumber directory = volume.mkdir(kRootInode, "d");
  const InodeNumber old = volume.store_file(directory, "old", "bytes of the old one");
  Created written = volume.create(directory, "new");
  volume.write(*written.opened.file, "bytes of the new one");
  Gate gate;
  volume.faults().on_write = [&gate] { gate.pass(); };
  gate.close();
  std::thread maker([&] { volume.create(directory, "third"); });
  gate.wait_for(1);
  std::thread closer([&] { must(volume->flush(*written.opened.file, TestVolume::kRoot)); });
  gate.wait_for(2);
  const InodeNumber made = written.entry.inode;

  std::vector<OpenFile*> files;
  // The directory that a name is on its way into.
  EXPECT_TRUE(look([&] { return volume->attributes(directory); }).ok());
  EXPECT_TRUE(look([&] { return volume->lookup(kRootInode, "d"); }).ok());
  EXPECT_TRUE(look([&] { return volume->list_xattrs(directory, TestVolume::kRoot); }).ok());
  // A file in it, and the one that is being published.
  for (const auto& [name, inode] : {std::pair{"old", old}, std::pair{"new", made}}) {
    EXPECT_TRUE(look([&, n = name] { return volume->lookup(directory, n); }).ok()) << name;
    EXPECT_TRUE(look([&, i = inode] { return volume->attributes(i); }).ok()) << name;
    const Result<Opened> opened =
        look([&, i = inode] { return volume->open(i, O_RDONLY, TestVolume::kRoot); });
    EXPECT_TRUE(opened.ok()) << name;
    if (opened.ok()) files.push_back(opened->file);
  }
  gate.open();
  maker.join();
  closer.join();
  for (OpenFile* file : files) volume->release(*file);
  EXPECT_TRUE(volume->lookup(directory, "third").ok());
}

TEST(StalledDisk, WhatWouldHaveToWaitIsLeftToAWorker) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "file", "bytes");
  Gate gate;
  volume.faults().on_write = [&gate] { gate.pass(); };
  gate.close();
  SetAttributes change;
  change.mode = 0600;
  std::thread changer(
      [&] { must(volume->set_attributes(file, change, nullptr, TestVolume::kRoot)); });
  gate.wait_for(1);
  EXPECT_TRUE(is_must_wait(look([&] { return volume->attributes(file); })));
  EXPECT_TRUE(is_must_wait(look([&] { return volume->lookup(kRootInode, "file"); })));
  EXPECT_TRUE(is_must_wait(look([&] { return volume->open_cost(file, O_RDONLY); })));
  gate.open();
  changer.join();
  const auto changed = look([&] { return volume->attributes(file); });
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(0600u, changed->attributes.st_mode & 07777);
}

TEST(StalledDisk, NewFilesGoToTheOtherOne) {
  TestVolume volume({.rocksdb = false, .devices = 2, .volume = {}});
  Gate gate;
  const std::string sick = volume.device_paths().front();
  volume.faults().on_device_write = [&](const std::string& device) {
    if (device == sick) gate.pass();
  };
  gate.close();
  const std::int64_t began = monotonic_now();
  for (int i = 0; i < 20; ++i)
    volume.store_file(kRootInode, "file" + std::to_string(i), "bytes");
  EXPECT_TRUE(volume->is_stalled());
  EXPECT_GE(volume->stalled_seconds(0), 1.0);
  EXPECT_EQ(0, volume->stalled_seconds(1));
  EXPECT_EQ(0, volume->state_stalled_seconds());
  // Each of the two that came to the sick one before it was known has waited for a second.
  EXPECT_LT(monotonic_now() - began, 10 * kNanosPerSecond);
  gate.open();
  while (volume->is_stalled()) std::this_thread::yield();
  volume.settle();
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(volume->lookup(kRootInode, "file" + std::to_string(i)).ok());
}

TEST(StalledDisk, WhatItWouldHaveToBeAskedForIsLeftToAWorker) {
  TestVolume volume;
  const InodeNumber file = volume.store_file(kRootInode, "file", "bytes");
  volume.settle();
  volume.faults().cold = true;
  EXPECT_TRUE(is_must_wait(look([&] { return volume->lookup(kRootInode, "file"); })));
  EXPECT_TRUE(is_must_wait(look([&] { return volume->attributes(file); })));
  const Result<OpenCost> cost = look([&] { return volume->open_cost(file, O_RDONLY); });
  ASSERT_TRUE(cost.ok());
  EXPECT_EQ(OpenCost::kWaitsForDisk, *cost);
  EXPECT_TRUE(volume->lookup(kRootInode, "file").ok());
}

// Of two disks the first gives nothing, and nothing of either is in memory.
class SilentDisk : public ::testing::Test {
 protected:
  static constexpr int kFiles = 20;
  static constexpr int kAll = kFiles + 4;  // with what is stored later

  void TearDown() override { gate_.open(); }
  static std::string name(int file) { return "file" + std::to_string(file); }
  void store() {
    for (int i = 0; i < kFiles; ++i) volume_.store_file(kRootInode, name(i), "bytes");
  }
  bool is_on_sick(int file) {
    const InodeNumber inode = must(volume_.resolve(name(file)));
    return must(volume_->disk_of(inode)).value_or(1) == 0;
  }
  std::function<void(const std::string&)> stop_sick() {
    return [this](const std::string& device) {
      if (device == volume_.device_paths().front()) gate_.pass();
    };
  }

  Gate gate_;
  TestVolume volume_{{.rocksdb = false, .devices = 2, .volume = {}}};
};

TEST_F(SilentDisk, ItsFilesAreMissesAndNotLost) {
  store();
  volume_.settle();
  std::map<int, bool> sick;
  for (int i = 0; i < kFiles; ++i) sick[i] = is_on_sick(i);
  volume_.faults().on_device_read = stop_sick();
  volume_.faults().cold = true;
  gate_.close();
  std::int64_t known = 0;  // when it is
  for (int i = 0; i < kFiles; ++i) {
    const Result<Entry> found = volume_->lookup(kRootInode, name(i));
    EXPECT_EQ(!sick[i], found.ok()) << i;
    if (found.ok()) continue;
    EXPECT_EQ(ENOENT, found.error().code);
    if (known == 0) known = monotonic_now();
  }
  // The first of them has waited, the others have not.
  EXPECT_LT(monotonic_now() - known, kNanosPerSecond / 2);
  EXPECT_TRUE(volume_->is_stuck(0));
  EXPECT_FALSE(volume_->is_stuck(1));
  EXPECT_GE(volume_->silent_seconds(0), 2.0);
  EXPECT_EQ(0, volume_->silent_seconds(1));
  EXPECT_EQ(0, volume_->stalled_seconds(0));
  gate_.open();
  ASSERT_TRUE(TestVolume::wait_for([&] { return !volume_->is_stuck(0); }));
  for (int i = 0; i < kFiles; ++i) EXPECT_EQ("bytes", must(volume_.read_path(name(i)))) << i;
}

// Not as long as the first one whom the disk gives nothing.
TEST_F(SilentDisk, WhoComesLateWaitsForTheRestOfTheTime) {
  store();
  volume_.settle();
  std::vector<int> sick;
  for (int i = 0; i < kFiles; ++i)
    if (is_on_sick(i)) sick.push_back(i);
  ASSERT_GE(sick.size(), 2U);
  volume_.faults().on_device_read = stop_sick();
  volume_.faults().cold = true;
  gate_.close();
  std::thread first([&] { EXPECT_FALSE(volume_->lookup(kRootInode, name(sick[0])).ok()); });
  TestVolume::let_pass(std::chrono::milliseconds(1000));
  const std::int64_t came = monotonic_now();
  EXPECT_FALSE(volume_->lookup(kRootInode, name(sick[1])).ok());
  EXPECT_LT(monotonic_now() - came, kNanosPerSecond * 18 / 10);
  first.join();
}

TEST_F(SilentDisk, WhatIsToBeKeptIsAnError) {
  store();
  for (int i = 0; i < kFiles; ++i) volume_.sync(must(volume_.resolve(name(i))));
  volume_.settle();
  int file = 0;
  while (!is_on_sick(file)) ++file;
  volume_.faults().on_device_read = stop_sick();
  volume_.faults().cold = true;
  gate_.close();
  const Result<Entry> found = volume_->lookup(kRootInode, name(file));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(EIO, found.error().code);
}

// Those of the sick one wait for their sync.
TEST_F(SilentDisk, SealsGoOnOnTheOther) {
  store();
  std::map<int, bool> sick;
  for (int i = 0; i < kFiles; ++i) sick[i] = is_on_sick(i);
  volume_.faults().on_device_sync = stop_sick();
  gate_.close();
  volume_.start();
  const auto sealed = [&](int i) {
    return volume_.state_of(must(volume_.resolve(name(i)))) == DataState::kSealed;
  };
  for (int i = 0; i < kFiles; ++i) {
    if (!sick[i]) {
      EXPECT_TRUE(TestVolume::wait_for([&] { return sealed(i); })) << i;
    }
  }
  // Also what comes later.
  for (int i = kFiles; i < kAll; ++i) {
    volume_.store_file(kRootInode, name(i), "bytes");
    if (is_on_sick(i)) continue;
    EXPECT_TRUE(TestVolume::wait_for([&] { return sealed(i); })) << i;
  }
  for (int i = 0; i < kFiles; ++i) EXPECT_NE(sick[i], sealed(i)) << i;
  gate_.open();
  for (int i = 0; i < kAll; ++i)
    EXPECT_TRUE(TestVolume::wait_for([&] { return sealed(i); })) << i;
  volume_.stop_cleanly();
  volume_.run();
  for (int i = 0; i < kAll; ++i) EXPECT_EQ("bytes", must(volume_.read_path(name(i))));
}

}  // namespace
}  // namespace kvcachefs::testing
