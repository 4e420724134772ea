// A store in memory, for tests: ordered maps under one lock.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "metadata/store.h"

namespace kvcachefs {

class MemoryStore : public Store {
 public:
  Result<std::optional<std::string>> get(Table table, std::string_view key) override;
  // `visit` may call back; it sees writes that come while it runs, unlike with RocksDB.
  Result<void> scan(
      Table table, std::string_view prefix, std::string_view from,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) override;
  Result<void> write(const WriteBatch& batch) override;
  Result<void> sync() override;
  [[nodiscard]] std::uint64_t memory_bytes() const override;
  [[nodiscard]] std::uint64_t disk_bytes() const override { return 0; }

 private:
  using Records = std::map<std::string, std::string, std::less<>>;

  mutable std::mutex mutex_;
  std::array<Records, kTableCount> tables_;
};

}  // namespace kvcachefs
