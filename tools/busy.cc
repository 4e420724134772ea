#include "tools/busy.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/dir_stream.h"
#include "fs/mount_table.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kMaxProcesses = 32;
constexpr std::int64_t kPatience = 5 * kNanosPerSecond;

// The device behind a link in /proc, from what the kernel knows by itself: the mount is not
// asked.
bool is_on(const std::string& link, dev_t device) {
  struct statx status;
  if (::statx(AT_FDCWD, link.c_str(), AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &status) != 0) {
    return false;
  }
  return makedev(status.stx_dev_major, status.stx_dev_minor) == device;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

bool has_open_file(const std::string& process, dev_t device, std::int64_t deadline) {
  const DirStream descriptors{::opendir((process + "/fd").c_str())};
  if (!descriptors) return false;
  while (const dirent* entry = ::readdir(descriptors.get())) {
    if (entry->d_name[0] == '.') continue;
    if (is_on(process + "/fd/" + entry->d_name, device)) return true;
    if (monotonic_now() > deadline) return false;
  }
  return false;
}

std::string link_target(const std::string& link) {
  std::array<char, 256> text;
  const ssize_t length = ::readlink(link.c_str(), text.data(), text.size());
  return length < 0 ? std::string{}
                    : std::string(text.data(), static_cast<std::size_t>(length));
}

class Search {
 public:
  explicit Search(dev_t device)
      : device_(device), own_namespace_(link_target("/proc/self/ns/mnt")) {}

  std::vector<BusyProcess> run() {
    const DirStream processes{::opendir("/proc")};
    if (!processes) return {};
    while (const dirent* entry = ::readdir(processes.get())) {
      const std::string_view name = entry->d_name;
      pid_t pid = 0;
      const auto read = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (read.ec != std::errc{} || read.ptr != name.data() + name.size()) continue;
      look_at(pid);
      if (found_.size() >= kMaxProcesses || monotonic_now() > deadline_) break;
    }
    return std::move(found_);
  }

 private:
  void look_at(pid_t pid) {
    const std::string process = fmt::format("/proc/{}", pid);
    std::vector<std::string> how;
    if (is_on(process + "/cwd", device_)) how.emplace_back("working directory");
    if (is_on(process + "/root", device_)) how.emplace_back("root directory");
    if (is_on(process + "/exe", device_)) how.emplace_back("program");
    if (has_open_file(process, device_, deadline_)) how.emplace_back("open file");
    if (maps_device(read_text(process + "/maps"), device_)) how.emplace_back("mapped file");
    if (in_other_namespace(process)) how.emplace_back("mounted in its container");
    if (how.empty()) return;
    std::string name = read_text(process + "/comm");
    if (!name.empty() && name.back() == '\n') name.pop_back();
    found_.push_back({.pid = pid, .name = std::move(name), .how = std::move(how)});
  }

  // Whether the process is the first one seen of another namespace that has the filesystem
  // mounted.
  bool in_other_namespace(const std::string& process) {
    const std::string name = link_target(process + "/ns/mnt");
    if (name.empty() || name == own_namespace_ || !namespaces_seen_.insert(name).second)
      return false;
    for (const MountEntry& entry : parse_mount_table(read_text(process + "/mountinfo"))) {
      if (entry.device == device_) return true;
    }
    return false;
  }

  dev_t device_;
  std::string own_namespace_;
  std::set<std::string> namespaces_seen_;
  std::vector<BusyProcess> found_;
  std::int64_t deadline_ = monotonic_now() + kPatience;
};

}  // namespace

bool maps_device(std::string_view maps, dev_t device) {
  // address perms offset major:minor inode path; the numbers of the device are hexadecimal.
  const std::string wanted = fmt::format("{:02x}:{:02x}", major(device), minor(device));
  while (!maps.empty()) {
    const std::size_t end = maps.find('\n');
    std::string_view line = maps.substr(0, end);
    for (int field = 0; field < 3; ++field) {
      const std::size_t space = line.find(' ');
      line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
    }
    if (line.substr(0, line.find(' ')) == wanted) return true;
    if (end == std::string_view::npos) break;
    maps.remove_prefix(end + 1);
  }
  return false;
}

std::vector<BusyProcess> processes_on(dev_t device) { return Search{device}.run(); }

std::string describe(const std::vector<BusyProcess>& processes) {
  std::string out;
  for (const BusyProcess& process : processes) {
    if (!out.empty()) out += ", ";
    out += fmt::format("{} ({}: {})", process.name, process.pid, fmt::join(process.how, ", "));
  }
  return out;
}

}  // namespace kvcachefs
