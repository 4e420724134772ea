#include "backend/base/proc_status.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "backend/base/unique_fd.h"

namespace kvcachefs {

std::string proc_status(pid_t pid, std::string_view key) {
  if (pid <= 0) return {};
  return proc_line("/proc/" + std::to_string(pid) + "/status", key);
}

std::string proc_line(const std::string& path, std::string_view key) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  // A process in the most groups that Linux allows fills some 700 KiB.
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  std::array<char, 4096> part;
  std::string text = "\n";
  while (text.size() < kLongest) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  const std::string begin = "\n" + std::string(key) + ":";
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return {};
  const std::size_t value = text.find_first_not_of(" \t", at + begin.size());
  if (value == std::string::npos) return {};
  return text.substr(value, text.find('\n', value) - value);
}

pid_t process_of(pid_t thread) {
  return static_cast<pid_t>(std::strtol(proc_status(thread, "Tgid").c_str(), nullptr, 10));
}

std::string first_line(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::array<char, 2048> text;
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got <= 0) return {};
  const std::string_view read(text.data(), static_cast<std::size_t>(got));
  return std::string(read.substr(0, read.find('\n')));
}

std::string boot_id() { return first_line("/proc/sys/kernel/random/boot_id"); }

}  // namespace kvcachefs
