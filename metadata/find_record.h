// Looks one record of the catalog up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "backend/base/result.h"
#include "metadata/store.h"

namespace kvcachefs {

// The common shape of find_*(): absent is not an error, damage is.
template <class Decode>
auto find(Store& store, Table table, std::string_view key, Decode decode)
    -> Result<std::optional<typename decltype(decode(std::string_view{}))::Value>> {
  using Record = typename decltype(decode(std::string_view{}))::Value;
  const std::optional<std::string> value = TRY(store.get(table, key));
  if (!value) return std::optional<Record>{};
  return std::optional<Record>{TRY(decode(*value))};
}

}  // namespace kvcachefs
