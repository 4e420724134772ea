// The kernel's table of mounts, as /proc/self/mountinfo shows it: asking it never touches a
// mount, so a dead or hung one cannot hold us.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/result.h"

namespace kvcachefs {

// What a mount of ours looks like in the table.
inline constexpr std::string_view kFilesystemType = "fuse.kvcachefs";

struct MountEntry {
  dev_t device = 0;
  std::string root;  // what of the filesystem is mounted here; "/" but for bind mounts
  std::string point;
  std::string options;  // of this mount point: ro,nosuid,…
  std::string type;
  std::string source;  // ours: the first nvme directory, or the state directory when that lies
                       // elsewhere
  std::string super_options;
  [[nodiscard]] bool is_ours() const noexcept { return type == kFilesystemType; }
};

// Lines that do not read are left out.
[[nodiscard]] std::vector<MountEntry> parse_mount_table(std::string_view text);
// Errors: what reading the file gives.
Result<std::vector<MountEntry>> read_mount_table();
// The topmost mount on exactly this path (canonical_path() of config.h makes one).
[[nodiscard]] std::optional<MountEntry> mount_on(const std::vector<MountEntry>& table,
                                                 std::string_view point);
// The mount that the path lies in.
[[nodiscard]] std::optional<MountEntry> mount_of(const std::vector<MountEntry>& table,
                                                 std::string_view path);

// Where a path lies on its filesystem, by whatever mount it is reached: two that differ are two places. Bind mounts
// show one place under several paths.
struct FilesystemPath {
  dev_t device = 0;
  std::string path;
};
// Of a path without symlinks. nullopt: the table has no mount for it.
[[nodiscard]] std::optional<FilesystemPath> path_on_filesystem(
    const std::vector<MountEntry>& table, std::string_view path);

// The state directory of a mount of ours, from its source.
[[nodiscard]] std::string state_of(const MountEntry& entry);

}  // namespace kvcachefs
