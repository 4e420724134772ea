#include "backend/base/trusted_path.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace kvcachefs {
namespace {

std::string unknown(const std::string& path) {
  return fmt::format("{}: {}", path, std::strerror(errno));
}

// Names the others who may put something into a directory of that status, and take it away.
// Empty: there are none.
std::string writer_of(const std::string& directory, const struct stat& status) {
  if (!is_trusted(status.st_uid))
    return fmt::format("{} belongs to uid {}", directory, status.st_uid);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return fmt::format("{} can be written by {} (mode {:04o})", directory,
                     (status.st_mode & S_IWOTH) != 0 ? "others" : "its group",
                     status.st_mode & 07777);
}

std::string replacer_of(const std::string& directory, const std::string& child) {
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0) return unknown(directory);
  std::string writer = writer_of(directory, status);
  if (writer.empty() || !is_trusted(status.st_uid) || (status.st_mode & S_ISVTX) == 0)
    return writer;
  // In a sticky one what belongs to us is ours to rename alone.
  struct stat own {};
  if (::lstat(child.c_str(), &own) != 0) {
    // One that is not there yet is looked at by who makes it.
    return errno == ENOENT ? std::string() : unknown(child);
  }
  return is_trusted(own.st_uid) ? std::string()
                                : fmt::format("{} belongs to uid {}", child, own.st_uid);
}

}  // namespace

bool is_trusted(uid_t uid) noexcept { return uid == 0 || uid == ::geteuid(); }

std::string replaceable_at(const std::string& path) {
  for (std::size_t slash = 0; slash + 1 < path.size();) {
    const std::size_t next = std::min(path.find('/', slash + 1), path.size());
    const std::string directory = slash == 0 ? "/" : path.substr(0, slash);
    std::string found = replacer_of(directory, path.substr(0, next));
    if (!found.empty()) return found;
    slash = next;
  }
  return {};
}

std::string writable_by_others(int directory) {
  struct stat status {};
  if (::fstat(directory, &status) != 0) return unknown("it");
  return writer_of("it", status);
}

std::string writable_by_others(const std::string& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return unknown(directory);
  return writer_of(directory, status);
}

}  // namespace kvcachefs
