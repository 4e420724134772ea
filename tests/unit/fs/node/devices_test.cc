// Where new objects go.
#include "fs/node/devices.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <vector>

#include "backend/device_dir.h"
#include "metadata/memory_store.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/held_tier.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs::testing {
namespace {

class DevicesTest : public ::testing::Test {
 protected:
  DevicesTest() : catalog_(must(Catalog::create(std::make_unique<MemoryStore>()))) {}
  void use(std::size_t count) {
    std::vector<std::unique_ptr<Tier>> tiers;
    for (std::size_t i = 0; i < count; ++i) {
      dirs_.push_back(std::make_unique<TempDir>());
      auto tier =
          std::make_unique<HeldTier>(must(DeviceDir::open({.path = dirs_.back()->path(),
                                                           .size_limit_bytes = 0,
                                                           .catalog = must(catalog_->uuid())},
                                                          true)));
      tiers_.push_back(tier.get());
      tiers.push_back(std::move(tier));
    }
    devices_ = must(Devices::create(*catalog_, std::move(tiers)));
  }
  std::uint32_t create() { return must(devices_->create_copy(++object_)).device; }

  std::unique_ptr<Catalog> catalog_;
  std::vector<std::unique_ptr<TempDir>> dirs_;
  std::vector<HeldTier*> tiers_;
  std::unique_ptr<Devices> devices_;
  ObjectId object_ = 100;
};

TEST_F(DevicesTest, TakesTurnsAndThoseThatAreTightComeLast) {
  use(3);
  devices_->is_tight = [](std::uint32_t index) { return index == 1; };
  std::set<std::uint32_t> used;
  for (int i = 0; i < 6; ++i) used.insert(create());
  EXPECT_EQ((std::set<std::uint32_t>{0, 2}), used);
  devices_->is_full = [](std::uint32_t index) { return index != 1; };
  EXPECT_EQ(1u, create());
  devices_->is_full = [](std::uint32_t) { return true; };
  const Result<NewCopy> refused = devices_->create_copy(++object_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(ENOSPC, refused.error().code);
}

TEST_F(DevicesTest, OneThatBecomesTightOrStopsToBeWhileItIsLookedAtIsUsed) {
  use(1);
  bool tight = false;
  devices_->is_tight = [&](std::uint32_t) { return tight = !tight; };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(0u, create());
}

// Two that take no writes: whichever does first has the file, and nobody waits for the other.
TEST_F(DevicesTest, OneThatTakesWritesAgainIsNotWaitedForBehindOneThatDoesNot) {
  use(2);
  for (HeldTier* const tier : tiers_) tier->set_held(true);
  const ObjectId object = ++object_;
  auto made =
      std::async(std::launch::async, [&] { return must(devices_->create_copy(object)); });
  for (std::uint32_t index : {0, 1})
    ASSERT_TRUE(TestVolume::wait_for([&] { return devices_->stalled(index) > 0; }));
  tiers_[1]->set_held(false);
  ASSERT_EQ(std::future_status::ready, made.wait_for(std::chrono::seconds{60}));
  EXPECT_EQ(1u, made.get().device);
  EXPECT_OK(tiers_[1]->status(object));
  // A file that comes late is not the object's.
  EXPECT_GT(devices_->stalled(0), 0);
  tiers_[0]->set_held(false);
  ASSERT_TRUE(TestVolume::wait_for([&] { return devices_->stalled(0) == 0; }));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !tiers_[0]->status(object).ok(); }));
  EXPECT_OK(tiers_[1]->status(object));
}

}  // namespace
}  // namespace kvcachefs::testing
