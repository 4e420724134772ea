// Rows of a catalog, as an input of the target `catalog` has them: a table, a key and a value
// each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "metadata/store.h"

namespace kvcachefs::fuzz {

struct Row {
  Table table;
  bool is_delete = false;
  std::string key = {};
  std::string value = {};
};

// A byte for the table (its highest bit: the row is taken away), and the key and the value,
// each behind a byte with its length. What is cut off is shorter.
[[nodiscard]] std::vector<Row> decode_rows(std::string_view bytes);
// Keys and values have at most 255 bytes.
[[nodiscard]] std::string encode_rows(const std::vector<Row>& rows);

// What the product writes for a small tree with a row in every table.
[[nodiscard]] const std::vector<Row>& sample_rows();

}  // namespace kvcachefs::fuzz
