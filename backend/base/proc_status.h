// The lines of /proc/PID/status and its like (proc(5)).
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace kvcachefs {

// What follows "Key:" and blanks; empty when there is no such process or line, and for 0, as which
// FUSE names a caller that this pid namespace does not show. A thread's id gives the thread's.
[[nodiscard]] std::string proc_status(pid_t pid, std::string_view key);
// The same of another file of such lines.
[[nodiscard]] std::string proc_line(const std::string& path, std::string_view key);

}  // namespace kvcachefs
