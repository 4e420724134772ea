// A store that keeps its writes to itself: the check without --repair makes every repair on
// this, so that it finds what a repair would find and changes nothing.
//
// One thread.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "metadata/store.h"

namespace kvcachefs {

class OverlayStore : public Store {
 public:
  explicit OverlayStore(std::unique_ptr<Store> below) : below_(std::move(below)) {}

  Result<std::optional<std::string>> get(Table table, std::string_view key) override;
  // `visit` may write.
  Result<void> scan(
      Table table, std::string_view prefix, std::string_view from,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) override;
  Result<void> write(const WriteBatch& batch) override;
  Result<void> sync() override { return {}; }
  [[nodiscard]] std::uint64_t memory_bytes() const override { return below_->memory_bytes(); }
  [[nodiscard]] std::uint64_t disk_bytes() const override { return below_->disk_bytes(); }

 private:
  // nullopt: removed.
  using Changes = std::map<std::string, std::optional<std::string>, std::less<>>;

  const std::unique_ptr<Store> below_;
  std::array<Changes, kTableCount> changes_;
};

}  // namespace kvcachefs
