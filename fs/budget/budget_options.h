// What a mount's budget is given, and what it says of a device.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fs/budget/room.h"
#include "fs/budget/usage.h"

namespace kvcachefs {

struct BudgetOptions {
  std::vector<DeviceLimits>
      devices;  // in the order of the tiers; those without one have the defaults
  // The one of `devices` whose filesystem holds the metadata's database; nullopt: none does.
  std::optional<std::size_t> database_on;
  std::chrono::nanoseconds lease = std::chrono::seconds{60};
};

// Of one device, as of the last look.
struct DeviceRoom {
  Room room;
  Marks marks;
  UsageSums usage;
  std::uint64_t database = 0;  // bytes of the metadata's, beside the budget
};

}  // namespace kvcachefs
