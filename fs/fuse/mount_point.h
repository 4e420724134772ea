// What the kernel's mount table says about a path.
#pragma once

#include <optional>
#include <string>

namespace kvcachefs {

// The device number ("0:57") of the topmost mount on `path`, or nullopt when nothing is mounted
// there. It does not touch the path itself: a dead mount answers, too.
[[nodiscard]] std::optional<std::string> mounted_device(const std::string& path);

}  // namespace kvcachefs
