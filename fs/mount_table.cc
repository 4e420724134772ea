#include "fs/mount_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "backend/base/unique_fd.h"
#include "fs/state_dir.h"

namespace kvcachefs {
namespace {

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// The kernel writes space, tab, newline and backslash as \ooo.
std::string unescape_octal(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) &&
        is_octal(text[i + 2]) && is_octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               text[i + 3] - '0');
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t space = line.find(' ');
    if (space != 0) words.push_back(line.substr(0, space));
    if (space == std::string_view::npos) break;
    line.remove_prefix(space + 1);
  }
  return words;
}

std::optional<dev_t> parse_device(std::string_view text) {
  unsigned major_number = 0;
  unsigned minor_number = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major_number);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ':') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, minor_number);
  if (second.ec != std::errc{} || second.ptr != end) return std::nullopt;
  return makedev(major_number, minor_number);
}

// id parent major:minor root point options [tags…] - type source super_options
std::optional<MountEntry> parse_line(std::string_view line) {
  const auto words = words_of(line);
  std::size_t dash = 6;
  while (dash < words.size() && words[dash] != "-") ++dash;
  if (dash + 2 >= words.size()) return std::nullopt;
  const auto device = parse_device(words[2]);
  if (!device) return std::nullopt;
  return MountEntry{
      .device = *device,
      .root = unescape_octal(words[3]),
      .point = unescape_octal(words[4]),
      .options = std::string(words[5]),
      .type = unescape_octal(words[dash + 1]),
      .source = unescape_octal(words[dash + 2]),
      .super_options = dash + 3 < words.size() ? unescape_octal(words[dash + 3]) : ""};
}

}  // namespace

std::vector<MountEntry> parse_mount_table(std::string_view text) {
  std::vector<MountEntry> table;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (auto entry = parse_line(text.substr(0, end))) table.push_back(std::move(*entry));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return table;
}

Result<std::vector<MountEntry>> read_mount_table() {
  const UniqueFd fd{::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC)};
  if (!fd) return fail_errno("open /proc/self/mountinfo");
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read /proc/self/mountinfo");
    if (got == 0) return parse_mount_table(text);
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

std::optional<MountEntry> mount_on(const std::vector<MountEntry>& table,
                                   std::string_view point) {
  for (auto entry = table.rbegin(); entry != table.rend(); ++entry) {
    if (entry->point == point) return *entry;
  }
  return std::nullopt;
}

std::optional<MountEntry> mount_of(const std::vector<MountEntry>& table,
                                   std::string_view path) {
  const MountEntry* best = nullptr;
  for (const MountEntry& entry : table) {
    const std::string& point = entry.point;
    const bool holds =
        point == "/" || path == point || (path.starts_with(point) && path[point.size()] == '/');
    // Of several on one point the later one is on top.
    if (holds && (best == nullptr || point.size() >= best->point.size())) best = &entry;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

std::optional<FilesystemPath> path_on_filesystem(const std::vector<MountEntry>& table,
                                                 std::string_view path) {
  const auto entry = mount_of(table, path);
  if (!entry) return std::nullopt;
  // Both are "/", or have none at their ends.
  path.remove_prefix(entry->point == "/" ? 0 : entry->point.size());
  if (path == "/") path = {};
  const std::string root = entry->root == "/" ? std::string{} : entry->root;
  const std::string whole = root + std::string(path);
  return FilesystemPath{.device = entry->device, .path = whole.empty() ? "/" : whole};
}

std::string state_of(const MountEntry& entry) {
  struct stat status;
  const std::string beside = entry.source + "/state";
  // A directory that we may not look into is there, too.
  if (::lstat(lock_path_of(beside).c_str(), &status) == 0 || errno == EACCES) return beside;
  return entry.source;
}

}  // namespace kvcachefs
