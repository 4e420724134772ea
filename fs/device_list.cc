#include "fs/device_list.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "backend/base/unique_fd.h"

namespace kvcachefs {
namespace {

// More than a mount may have, each of the longest length.
constexpr std::size_t kLongestList = 1 << 20;

std::string list_path(const std::string& state) { return state + "/devices"; }

std::string escape(std::string_view path) {
  std::string line;
  for (const char c : path) {
    if (c == '\n') {
      line += "\\n";
    } else {
      if (c == '\\') line += '\\';
      line += c;
    }
  }
  return line;
}

Result<std::string> unescape(std::string_view line) {
  std::string path;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      path += line[i];
      continue;
    }
    if (++i == line.size() || (line[i] != 'n' && line[i] != '\\'))
      return fail(EBADMSG, "device list: escape");
    path += line[i] == 'n' ? '\n' : '\\';
  }
  if (!path.starts_with('/')) return fail(EBADMSG, "device list: not an absolute path");
  return path;
}

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_errno("device list: write");
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Result<std::string> read_all(int fd) {
  std::string text;
  char buffer[4096];
  while (text.size() <= kLongestList) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("device list: read");
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return fail(EBADMSG, "device list: too long");
}

}  // namespace

std::string encode_device_list(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) text += escape(path) + "\n";
  return text;
}

Result<std::vector<std::string>> decode_device_list(std::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return fail(EBADMSG, "device list: last line");
    paths.push_back(TRY(unescape(text.substr(0, end))));
    text.remove_prefix(end + 1);
  }
  return paths;
}

Result<void> write_device_list(const std::string& state,
                               const std::vector<std::string>& paths) {
  std::vector<std::string> real_paths;
  for (const std::string& path : paths) {
    const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr),
                                                      ::free);
    if (!real) return fail_errno("device list: a device's path");
    real_paths.emplace_back(real.get());
  }
  if (const Result<std::vector<std::string>> standing = read_device_list(state);
      standing.ok() && *standing == real_paths)
    return {};
  const std::string text = encode_device_list(real_paths);
  const std::string temporary = list_path(state) + ".new";
  const UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno("device list: create");
  TRY(write_all(file.get(), text));
  if (::fsync(file.get()) != 0) return fail_errno("device list: fsync");
  if (::rename(temporary.c_str(), list_path(state).c_str()) != 0)
    return fail_errno("device list: rename");
  const UniqueFd directory(::open(state.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) return fail_errno("device list: fsync");
  return {};
}

Result<std::vector<std::string>> read_device_list(const std::string& state) {
  const UniqueFd file(
      ::open(list_path(state).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return fail_errno("device list: open");
  return decode_device_list(TRY(read_all(file.get())));
}

}  // namespace kvcachefs
