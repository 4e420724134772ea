#include "fs/check/overlay_store.h"

#include <algorithm>

namespace kvcachefs {

Result<std::optional<std::string>> OverlayStore::get(Table table, std::string_view key) {
  const Changes& changes = changes_[static_cast<std::size_t>(table)];
  const auto changed = changes.find(key);
  if (changed != changes.end()) return changed->second;
  return below_->get(table, key);
}

Result<void> OverlayStore::scan(
    Table table, std::string_view prefix, std::string_view from,
    const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  const Changes& changes = changes_[static_cast<std::size_t>(table)];
  // Where the scan is: found again after every visit, which may have written.
  std::string at(std::max(prefix, from));
  bool visited = false;
  const auto show_changes_before = [&](std::optional<std::string_view> end) {
    while (true) {
      const auto next = visited ? changes.upper_bound(at) : changes.lower_bound(at);
      if (next == changes.end() || !next->first.starts_with(prefix) ||
          (end && next->first >= *end))
        return true;
      at = next->first;
      visited = true;
      const std::optional<std::string> value = next->second;
      if (value && !visit(std::string(at), *value)) return false;
    }
  };
  bool ended = false;
  TRY(below_->scan(table, prefix, from, [&](std::string_view key, std::string_view value) {
    if (!show_changes_before(key)) {
      ended = true;
      return false;
    }
    at = key;
    visited = true;
    const auto changed = changes.find(key);
    if (changed == changes.end()) {
      ended = !visit(key, value);
    } else if (const std::optional<std::string> now = changed->second) {
      ended = !visit(key, *now);
    }
    return !ended;
  }));
  if (!ended) show_changes_before(std::nullopt);
  return {};
}

Result<void> OverlayStore::write(const WriteBatch& batch) {
  for (const WriteBatch::Operation& operation : batch.operations()) {
    changes_[static_cast<std::size_t>(operation.table)].insert_or_assign(
        operation.key,
        operation.is_delete ? std::nullopt : std::optional<std::string>(operation.value));
  }
  return {};
}

}  // namespace kvcachefs
