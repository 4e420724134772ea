#include "fs/layout/decimal.h"

#include <cstdint>

namespace kvcachefs::layout {

DecimalText decimal_of_hex(std::string_view hex) noexcept {
  DecimalText text;
  const bool negative = hex.starts_with('-');
  if (negative) hex.remove_prefix(1);
  if (hex.empty() || hex.size() > 64) return text;

  // Limbs of 32 bits, the lowest first.
  std::array<std::uint32_t, 8> limbs{};
  for (std::size_t at = 0; at < hex.size(); ++at) {
    const char c = hex[hex.size() - 1 - at];
    const auto digit = static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    limbs[at / 8] |= digit << (at % 8 * 4);
  }
  std::size_t used = (hex.size() + 7) / 8;
  while (used > 1 && limbs[used - 1] == 0) --used;

  // Nine digits at a time, the lowest first.
  constexpr std::uint32_t kBillion = 1'000'000'000;
  for (;;) {
    std::uint64_t remainder = 0;
    for (std::size_t at = used; at-- > 0;) {
      const std::uint64_t value = remainder << 32 | limbs[at];
      limbs[at] = static_cast<std::uint32_t>(value / kBillion);
      remainder = value % kBillion;
    }
    while (used > 1 && limbs[used - 1] == 0) --used;
    const bool is_last = used == 1 && limbs[0] == 0;
    for (int digits = 0; digits < 9 && (!is_last || remainder != 0 || digits == 0); ++digits) {
      text.bytes[--text.begin] = static_cast<char>('0' + remainder % 10);
      remainder /= 10;
    }
    if (is_last) break;
  }
  if (negative) text.bytes[--text.begin] = '-';
  return text;
}

}  // namespace kvcachefs::layout
