#include "metadata/memory_store.h"

#include <algorithm>
#include <utility>

namespace kvcachefs {

Result<std::optional<std::string>> MemoryStore::get(Table table, std::string_view key) {
  const std::lock_guard lock(mutex_);
  const Records& records = tables_[static_cast<std::size_t>(table)];
  const auto found = records.find(key);
  if (found == records.end()) return std::optional<std::string>{};
  return std::optional<std::string>{found->second};
}

Result<void> MemoryStore::scan(
    Table table, std::string_view prefix, std::string_view from,
    const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  // One record at a time under the lock: a scan of a large table costs no copy of it.
  std::string key(std::max(prefix, from));
  std::string value;
  bool inclusive = true;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      const Records& records = tables_[static_cast<std::size_t>(table)];
      const auto found = inclusive ? records.lower_bound(key) : records.upper_bound(key);
      if (found == records.end() || !found->first.starts_with(prefix)) return {};
      key = found->first;
      value = found->second;
    }
    inclusive = false;
    if (!visit(key, value)) return {};
  }
}

Result<void> MemoryStore::write(const WriteBatch& batch) {
  const std::lock_guard lock(mutex_);
  for (const WriteBatch::Operation& operation : batch.operations()) {
    Records& records = tables_[static_cast<std::size_t>(operation.table)];
    if (operation.is_delete) {
      records.erase(operation.key);
    } else {
      records.insert_or_assign(operation.key, operation.value);
    }
  }
  return {};
}

Result<void> MemoryStore::sync() { return {}; }

std::uint64_t MemoryStore::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const Records& records : tables_) {
    for (const auto& [key, value] : records) bytes += key.size() + value.size();
  }
  return bytes;
}

}  // namespace kvcachefs
