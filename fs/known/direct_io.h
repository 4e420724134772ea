// Whether files may be opened with O_DIRECT: told to the mount (--odirect), or to a directory for all below.
//
// Where it is refused, such an open fails with EINVAL, as on a filesystem that has none. A runtime that
// tries it out reads through the page cache then, and finds there what was read ahead for it
// (fs/life/stager.h). fcntl(2) cannot be refused, and has no effect on an open file of FUSE.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvcachefs {

enum class DirectIo : std::uint8_t { kPass, kRefuse };

// "pass" or "refuse"; on a directory.
inline constexpr std::string_view kDirectIoXattr = "user.kvcachefs.odirect";

[[nodiscard]] constexpr std::optional<DirectIo> parse_direct_io(std::string_view text) {
  if (text == "pass") return DirectIo::kPass;
  if (text == "refuse") return DirectIo::kRefuse;
  return std::nullopt;
}
[[nodiscard]] constexpr std::string_view name_of(DirectIo direct_io) {
  return direct_io == DirectIo::kRefuse ? "refuse" : "pass";
}

}  // namespace kvcachefs
