// What `-o a,b=c,…` says: settings of ours by their names, flags for the kernel, and words that
// are meant for mount(8), systemd or the boot and mean nothing to us.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/base/result.h"
#include "backend/private_mount.h"

namespace kvcachefs {

// One setting as some source gave it: `name` as in settings() (dashes), `value` empty for a
// flag.
struct Assignment {
  std::string name;
  std::string value;
  bool operator==(const Assignment&) const = default;
};

// What is passed to the kernel with the mount. The defaults are those of a mount that serves
// many users: no device nodes, no set-uid programs.
struct KernelOptions {
  bool dev = false;
  bool suid = false;
  bool exec = true;
  bool read_only = false;
  AccessTimes access_times = AccessTimes::kAsBelow;  // of files
  bool nodiratime = false;
  bool symfollow = true;
  bool sync = false;
  bool dirsync = false;
  // SELinux labels as `context=…`, passed through as they are.
  std::vector<std::string> contexts;
  bool operator==(const KernelOptions&) const = default;
};

// Splits a list at its commas. A value may be quoted ("a,b") or hold `\,`, `\"` and `\\`; these quotes and
// backslashes are taken away. Empty words are dropped. Errors: EINVAL (a quote without an end).
Result<std::vector<std::string>> split_options(std::string_view list);

// Reads a list: kernel flags change `kernel` (the last one of a pair counts), settings of ours
// are appended to `settings`. `problem` says which word was refused and what to do. Errors:
// EINVAL.
Result<void> parse_mount_options(std::string_view list, KernelOptions& kernel,
                                 std::vector<Assignment>& settings, std::string& problem);

// The options that libfuse passes on, one by one, as mount(8) writes them: `nosuid`, `ro`,
// `context=…`. Not strictatime and nosymfollow, which set_mount_flags()
// (backend/private_mount.h) gives a mount, and not relatime, the kernel's default.
[[nodiscard]] std::vector<std::string> kernel_option_words(const KernelOptions& options);

// Whether the word (an option without its value) says nothing to a filesystem: `nofail`, `x-…`.
[[nodiscard]] bool is_mount_table_word(std::string_view word) noexcept;

}  // namespace kvcachefs
