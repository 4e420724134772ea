#include "fs/fuse/mount_point.h"

#include <fstream>
#include <sstream>

namespace kvcachefs {

namespace {

// Blanks and backslashes are written as three octal digits.
std::string unescape(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

std::optional<std::string> mounted_device(const std::string& path) {
  std::ifstream table("/proc/self/mountinfo");
  std::optional<std::string> device;
  std::string line;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string id, parent, number, root, point;
    fields >> id >> parent >> number >> root >> point;
    // Later lines are mounted over earlier ones.
    if (unescape(point) == path) device = number;
  }
  return device;
}

}  // namespace kvcachefs
