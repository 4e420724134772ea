#include "fs/names/session_order.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace kvcachefs {
namespace {

constexpr std::size_t kBatch = 1024;
constexpr std::size_t kMostDigits = 9;  // fit into 32 bits

std::optional<std::uint32_t> position_of(std::string_view name) {
  if (name.empty() || name.size() > kMostDigits || (name.size() > 1 && name[0] == '0'))
    return std::nullopt;
  std::uint32_t position = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), position);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return position;
}

}  // namespace

Result<std::vector<SessionEntry>> session_order(Catalog& catalog, InodeNumber session,
                                                std::size_t most) {
  std::vector<SessionEntry> order;
  std::uint64_t after = 0;
  for (;;) {
    const std::vector<DirEntry> entries = TRY(catalog.list_directory(session, after, kBatch));
    for (const DirEntry& entry : entries) {
      const std::optional<std::uint32_t> position =
          entry.type == DT_REG ? position_of(entry.name) : std::nullopt;
      if (!position) continue;
      if (order.size() == most) return fail(E2BIG, "entries of a session");
      order.push_back({.position = *position, .inode = entry.inode});
    }
    if (entries.size() < kBatch) break;
    after = entries.back().cookie;
  }
  std::sort(order.begin(), order.end(), [](const SessionEntry& a, const SessionEntry& b) {
    return a.position < b.position;
  });
  return order;
}

}  // namespace kvcachefs
