#include "tools/commands.h"

namespace kvcachefs {

std::string wrap_help(std::string_view text) {
  constexpr std::size_t kWidth = 56;
  std::string out;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    if (column > 0) {
      const bool fits = column + 1 + word.size() <= kWidth;
      out += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    out += word;
    column += word.size();
    if (space == std::string_view::npos) break;
    text.remove_prefix(space + 1);
  }
  return out;
}

}  // namespace kvcachefs
