// A device that is lost or read-only costs its own files, and nothing else.
#include "fs/life/device_watch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "fs/known/file_policy.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs::testing {
namespace {

constexpr int kFiles = 20;
const std::string kWhole(4096, 'd');

class IllDevices : public ::testing::Test {
 protected:
  IllDevices() : volume_(two_devices()) {}
  static TestVolumeOptions two_devices() {
    TestVolumeOptions options;
    options.devices = 2;
    options.volume.device_period = std::chrono::milliseconds{20};
    return options;
  }
  void SetUp() override { volume_.start(); }
  const std::string& path(std::size_t device) { return volume_.device_paths()[device]; }
  bool becomes(std::size_t device, DeviceState state) {
    return TestVolume::wait_for([&] { return volume_->device_state(device) == state; });
  }
  void store(const std::string& name) {
    const InodeNumber inode = volume_.store_file(kRootInode, name, kWhole);
    volume_->forget(inode, 1);
  }
  // Creates until the device is noticed.
  void make_ill(std::size_t device, int error, DeviceState state) {
    volume_.faults().set_ill(path(device), error);
    store("notice" + std::to_string(error) + "a");
    store("notice" + std::to_string(error) + "b");
    ASSERT_TRUE(becomes(device, state));
  }
  // By the files that are there: on which device each is.
  int found(const std::string& prefix, int count) {
    int hits = 0;
    for (int i = 0; i < count; ++i) {
      const Result<Entry> entry =
          volume_->lookup(kRootInode, prefix + std::to_string(i), TestVolume::kRoot);
      if (entry.ok()) {
        ++hits;
        volume_->forget(entry->inode, 1);
      } else {
        EXPECT_EQ(ENOENT, entry.error().code);
      }
    }
    return hits;
  }

  TestVolume volume_;
};

TEST_F(IllDevices, AReadOnlyOneIsReadAndGetsNoNewFiles) {
  for (int i = 0; i < kFiles; ++i) store("f" + std::to_string(i));
  make_ill(0, EROFS, DeviceState::kReadOnly);
  for (int i = 0; i < kFiles; ++i) store("g" + std::to_string(i));
  EXPECT_EQ(kFiles, found("f", kFiles));
  EXPECT_EQ(kFiles, found("g", kFiles));
  EXPECT_EQ(DeviceState::kWell, volume_->device_state(1));
  // Remounted.
  volume_.faults().set_ill(path(0), 0);
  EXPECT_TRUE(becomes(0, DeviceState::kWell));
  EXPECT_EQ(kFiles, found("f", kFiles));
}

TEST_F(IllDevices, ALostOnesFilesAreMissesAndAreStoredAgainElsewhere) {
  for (int i = 0; i < kFiles; ++i) store("f" + std::to_string(i));
  make_ill(1, EIO, DeviceState::kLost);
  EXPECT_EQ(kFiles / 2, found("f", kFiles));
  EXPECT_EQ(static_cast<std::uint64_t>(kFiles / 2),
            volume_->drop_counts()[static_cast<std::size_t>(DropReason::kLost)].files);
  for (int i = 0; i < kFiles; ++i) {
    if (!volume_.resolve("f" + std::to_string(i)).ok()) store("f" + std::to_string(i));
  }
  EXPECT_EQ(kFiles, found("f", kFiles));
  EXPECT_OK(volume_->statfs());
}

TEST_F(IllDevices, OneThatCannotBeAskedIsNotLost) {
  for (int i = 0; i < kFiles; ++i) store("f" + std::to_string(i));
  make_ill(1, EIO, DeviceState::kReadOnly);
  // No descriptor is free: whether it is well is not known.
  volume_.faults().set_ill(path(1), EMFILE);
  const int looks = volume_.faults().checks;
  ASSERT_TRUE(TestVolume::wait_for([&] { return volume_.faults().checks >= looks + 5; }));
  EXPECT_EQ(DeviceState::kReadOnly, volume_->device_state(1));
  EXPECT_EQ(kFiles, found("f", kFiles));
  volume_.faults().set_ill(path(1), 0);
  EXPECT_TRUE(becomes(1, DeviceState::kWell));
}

TEST_F(IllDevices, WhatMustBeKeptWaitsForItsDevice) {
  for (int i = 0; i < 2; ++i) store("f" + std::to_string(i));
  for (int i = 0; i < 2; ++i)
    must(volume_->set_xattr(must(volume_.resolve("f" + std::to_string(i))), kPolicyXattr,
                            "keep", 0, TestVolume::kRoot));
  make_ill(0, ENODEV, DeviceState::kLost);
  int waiting = 0;
  for (int i = 0; i < 2; ++i) {
    const Result<Entry> entry =
        volume_->lookup(kRootInode, "f" + std::to_string(i), TestVolume::kRoot);
    if (!entry.ok() && entry.error().code == EIO) ++waiting;
  }
  EXPECT_EQ(1, waiting);
  volume_.faults().set_ill(path(0), 0);
  EXPECT_TRUE(becomes(0, DeviceState::kWell));
  EXPECT_EQ(2, found("f", 2));
}

TEST_F(IllDevices, WhenNoneIsWellTheErrorIsTheirs) {
  make_ill(0, EROFS, DeviceState::kReadOnly);
  volume_.faults().set_ill(path(1), EROFS);
  const auto create = [&](const std::string& name) {
    const Result<Created> made =
        volume_->create(kRootInode, name, 0644, O_RDWR, TestVolume::kRoot);
    if (!made.ok()) return made.error().code;
    volume_->release(*made->opened.file);
    return 0;
  };
  EXPECT_EQ(EROFS, create("a"));
  EXPECT_TRUE(becomes(1, DeviceState::kReadOnly));
  EXPECT_EQ(EROFS, create("b"));
  volume_.faults().set_ill(path(1), 0);
  EXPECT_EQ(0, create("c"));
}

}  // namespace
}  // namespace kvcachefs::testing
