#include "backend/base/memory.h"

#include <cstdlib>
#include <string>

#include "backend/base/proc_status.h"

namespace kvcachefs {
namespace {

std::optional<std::uint64_t> memory(std::string_view key) {
  const std::string text = proc_line("/proc/meminfo", key);  // "24018124 kB"
  const std::uint64_t kib = std::strtoull(text.c_str(), nullptr, 10);
  if (kib == 0) return std::nullopt;
  return kib * 1024;
}

}  // namespace

std::optional<std::uint64_t> total_memory() { return memory("MemTotal"); }
std::optional<std::uint64_t> available_memory() { return memory("MemAvailable"); }

}  // namespace kvcachefs
