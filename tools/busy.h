// Who keeps a mount busy: processes with an open or mapped file, a working directory, a root or
// a program on it, or with the mount in a mount namespace of their own (a container).
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace kvcachefs {

struct BusyProcess {
  pid_t pid = 0;
  std::string name;
  std::vector<std::string> how;  // "open file", "mapped file", "working directory", …
};

// Looks through /proc for users of the filesystem with that device number. Takes a few seconds
// at most, and at most 32 processes; it never waits for the mount itself.
[[nodiscard]] std::vector<BusyProcess> processes_on(dev_t device);

// `llama-server (4711: open file, working directory), bash (12: working directory)`.
[[nodiscard]] std::string describe(const std::vector<BusyProcess>& processes);

// Whether a file of that device is in the text of a /proc/PID/maps.
[[nodiscard]] bool maps_device(std::string_view maps, dev_t device);

}  // namespace kvcachefs
