#include "fs/foreign_entry.h"

#include <filesystem>
#include <system_error>
#include <utility>

namespace kvcachefs {

std::string foreign_entry(const std::string& directory,
                          const std::function<bool(const std::string& name)>& is_own) {
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename();
    if (!is_own(name)) return name;
  }
  return {};
}

}  // namespace kvcachefs
