// What is told of each tenant: what it may have, what it has, how often its blocks were found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fs/budget/usage.h"

namespace kvcachefs {

struct Core;

struct TenantReport {
  std::string path;                    // relative to the root; empty: the root
  std::optional<std::uint64_t> share;  // bytes of the budget as it is
  std::optional<std::uint64_t> quota;
  TenantUse use;
  bool is_counted = true;  // else `use` is what is known so far
  std::uint64_t hits = 0;  // lookups of blocks, since the start
  std::uint64_t misses = 0;
};

// Those that are known by now, without those whose directory has just gone.
[[nodiscard]] std::vector<TenantReport> tenant_reports(Core& core);

}  // namespace kvcachefs
