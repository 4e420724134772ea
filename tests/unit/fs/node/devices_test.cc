// Where new objects go.
#include "fs/node/devices.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "backend/device_dir.h"
#include "metadata/memory_store.h"
#include "tests/fakes/expect_result.h"
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
      tiers.push_back(must(DeviceDir::open({.path = dirs_.back()->path(),
                                            .size_limit_bytes = 0,
                                            .catalog = must(catalog_->uuid())},
                                           true)));
    }
    devices_ = must(Devices::create(*catalog_, std::move(tiers)));
  }
  std::uint32_t create() { return must(devices_->create_copy(++object_)).device; }

  std::unique_ptr<Catalog> catalog_;
  std::vector<std::unique_ptr<TempDir>> dirs_;
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

}  // namespace
}  // namespace kvcachefs::testing
