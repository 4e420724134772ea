// What the kernel says in /proc (proc(5)): the lines of /proc/PID/status and its like, and single ones.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace kvcachefs {

// What follows "Key:" and blanks; empty when there is no such process or line, and for 0, as which
// FUSE names a caller that this pid namespace does not show. A thread's id gives the thread's.
[[nodiscard]] std::string proc_status(pid_t pid, std::string_view key);
// Whose thread it is; 0: it has ended, or this pid namespace does not show it.
[[nodiscard]] pid_t process_of(pid_t thread);
// The same as proc_status() of another file of such lines.
[[nodiscard]] std::string proc_line(const std::string& path, std::string_view key);

// The first line of a small file of the kernel's, at most 2 KiB of it; empty: it cannot be read.
[[nodiscard]] std::string first_line(const std::string& path);
// Another one after each boot of the machine.
[[nodiscard]] std::string boot_id();

}  // namespace kvcachefs
