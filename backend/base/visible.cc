#include "backend/base/visible.h"

#include <fmt/format.h>

#include <cstddef>

namespace kvcachefs {
namespace {

// The length of the character that begins there; 0: none does that may be shown. Table 3-7 of the Unicode Standard, but for
// the few sequences of three and four bytes that it leaves out.
std::size_t shown_at(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
  // The second set of control characters, and what changes how the line is laid out: marks and overrides of direction, separators
  // of lines and paragraphs, characters without a width.
  if (first == 0xc2 && byte(1) < 0xa0) return 0;
  const unsigned point =
      length == 3 ? (first & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU) : 0;
  const bool is_layout = (point >= 0x200b && point <= 0x200f) ||
                         (point >= 0x2028 && point <= 0x202e) ||
                         (point >= 0x2060 && point <= 0x2069) || point == 0xfeff;
  return is_layout ? 0 : length;
}

std::string escaped(std::string_view text, bool with_backslash) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool is_hidden = with_backslash && text[at] == '\\';
    const std::size_t length = is_hidden ? 0 : shown_at(text, at);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at++]));
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

}  // namespace

std::string visible(std::string_view text) { return escaped(text, true); }

std::string visible_message(std::string_view text) { return escaped(text, false); }

}  // namespace kvcachefs
