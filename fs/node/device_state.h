// How well a device is, as of its last check (fs/life/device_watch.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvcachefs {

enum class DeviceState : std::uint8_t {
  kWell,
  kReadOnly,  // what it has can be read
  kLost,
};

// "well", "read_only", "lost".
[[nodiscard]] constexpr std::string_view name_of(DeviceState state) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"well", "read_only", "lost"};
  return kNames[static_cast<std::size_t>(state)];
}

}  // namespace kvcachefs
