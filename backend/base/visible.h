// Text from outside, in a line for people: names of files are any bytes, and a terminal obeys some of them.
#pragma once

#include <string>
#include <string_view>

namespace kvcachefs {

// What is no printable ASCII or UTF-8 as \xNN, and so is the backslash: it stays on its line, and tells the terminal nothing.
[[nodiscard]] std::string visible(std::string_view text);
// The same of a whole message, which may quote what is visible() already: the backslash stays.
[[nodiscard]] std::string visible_message(std::string_view text);

}  // namespace kvcachefs
