// What a mount's budget is given, and what it says of a device.
#pragma once

#include <chrono>
#include <vector>

#include "fs/budget/room.h"
#include "fs/budget/usage.h"

namespace kvcachefs {

struct BudgetOptions {
  std::vector<DeviceLimits>
      devices;  // in the order of the tiers; those without one have the defaults
  std::chrono::nanoseconds lease = std::chrono::seconds{60};
};

// Of one device, as of the last look.
struct DeviceRoom {
  Room room;
  Marks marks;
  UsageSums usage;
};

}  // namespace kvcachefs
