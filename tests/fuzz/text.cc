// Text that any user chooses and that stands in other text: the name of a program in
// /proc/PID/stat, and names that are written to a terminal.
#include <cstdint>
#include <string>
#include <string_view>

#include "backend/base/visible.h"
#include "fs/check/check.h"
#include "fs/known/writers.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

constexpr std::uint32_t kBoot = 7;

// A program is called what it likes: its process stays the one that it is.
void check_process(std::string_view name) {
  const std::string stat = "4711 (" + std::string(name) +
                           ") S 1 4711 4711 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654 10 11 "
                           "18446744073709551615 0 0";
  const ProcessId process = parse_process(stat, kBoot);
  require(process == ProcessId{.boot = kBoot, .number = 4711, .began = 987654});
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The bytes that a text with \xhh stands for.
std::string bytes_of(std::string_view shown) {
  std::string bytes;
  for (std::size_t at = 0; at < shown.size(); ++at) {
    if (shown[at] != '\\') {
      bytes += shown[at];
      continue;
    }
    require(at + 3 < shown.size() && shown[at + 1] == 'x');
    const int high = digit_of(shown[at + 2]);
    const int low = digit_of(shown[at + 3]);
    require(high >= 0 && low >= 0);
    bytes += static_cast<char>(high * 16 + low);
    at += 3;
  }
  return bytes;
}

// Nothing that steers a terminal is left, and no two names look alike.
void check_shown(std::string_view name, const std::string& shown) {
  for (const char c : shown) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  require(bytes_of(shown) == name);
}

}  // namespace

bool text(std::string_view input) {
  const auto [reader, raw, rest] = choose(input, 2);
  if (reader == 0 && raw) return parse_process(rest, kBoot).any();
  if (reader == 0) {
    check_process(rest);
  } else {
    check_shown(rest, visible(rest));
    check_shown(rest, printable(rest));
  }
  return true;
}

}  // namespace kvcachefs::fuzz
