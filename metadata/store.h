// SEAM: the ordered key-value store under the catalog. Implementations: rocksdb_store (the
// product's), memory_store (tests); one contract suite (tests/contract/store_test.cc) holds for
// both.
//
// Any thread may call any method. Keys and values are bytes; keys order by memcmp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/result.h"

namespace kvcachefs {

// The tables (RocksDB column families; their names are in FORMAT.md).
enum class Table : std::uint8_t {
  kMeta,
  kDentries,
  kListings,
  kInodes,
  kObjects,
  kBackReferences,
  kXattrs,
  kOrphans,
  kUnsealed,
  kBlocks,
  kPrefixes,
  kPoolCopies,
  kPoolQueue,
};
inline constexpr std::size_t kTableCount = 13;

class WriteBatch {
 public:
  struct Operation {
    Table table;
    bool is_delete;
    std::string key;
    std::string value;
  };
  void put(Table table, std::string key, std::string value) {
    operations_.push_back({table, false, std::move(key), std::move(value)});
  }
  void remove(Table table, std::string key) {
    operations_.push_back({table, true, std::move(key), {}});
  }
  // It frees more than it adds: to be let through when the disk is full.
  void set_frees() noexcept { frees_ = true; }
  [[nodiscard]] bool frees() const noexcept { return frees_; }
  [[nodiscard]] bool empty() const noexcept { return operations_.empty(); }
  [[nodiscard]] const std::vector<Operation>& operations() const noexcept {
    return operations_;
  }

 private:
  std::vector<Operation> operations_;
  bool frees_ = false;
};

class Store {
 public:
  virtual ~Store() = default;
  // nullopt: no such key. Errors: EIO, EBADMSG (damaged block).
  virtual Result<std::optional<std::string>> get(Table table, std::string_view key) = 0;
  // Visits keys ≥ `from` that begin with `prefix`, in order, until `visit` returns false. The
  // views last for the call.
  virtual Result<void> scan(
      Table table, std::string_view prefix, std::string_view from,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) = 0;
  // All or nothing; handed to the operating system before it returns. Errors: EIO, ENOSPC.
  virtual Result<void> write(const WriteBatch& batch) = 0;
  // Makes every write that has returned durable. Errors: EIO, ENOSPC.
  virtual Result<void> sync() = 0;
  [[nodiscard]] virtual std::uint64_t memory_bytes() const = 0;
  // What its files occupy now, without the room that it keeps for removals on a full disk. Lists a
  // directory.
  [[nodiscard]] virtual std::uint64_t disk_bytes() const = 0;
};

}  // namespace kvcachefs
