// A hash of LMCache as Python's str() writes it: a decimal number, whose first digits name the
// directories of its GDS backend.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace kvcachefs::layout {

// The sign and the digits; "" for what is too long. Owns its text.
struct DecimalText {
  std::array<char, 81> bytes;  // 64 hex digits are 78 decimal ones, and a sign
  std::size_t begin = bytes.size();
  [[nodiscard]] std::string_view view() const noexcept {
    return {bytes.data() + begin, bytes.size() - begin};
  }
};

// `hex` is lower-case hex with '-' before it or not, at most 64 digits.
DecimalText decimal_of_hex(std::string_view hex) noexcept;

}  // namespace kvcachefs::layout
