#include "backend/base/units.h"

#include <fmt/format.h>

#include <array>
#include <optional>

namespace kvcachefs {
namespace {

using Wide = unsigned __int128;

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::array<Unit, 20> kSizeUnits{{
    {"", 1},
    {"b", 1},
    {"k", kKiB},
    {"kib", kKiB},
    {"kb", 1'000},
    {"m", kMiB},
    {"mib", kMiB},
    {"mb", 1'000'000},
    {"g", kGiB},
    {"gib", kGiB},
    {"gb", 1'000'000'000},
    {"t", kTiB},
    {"tib", kTiB},
    {"tb", 1'000'000'000'000},
    {"p", 1024 * kTiB},
    {"pib", 1024 * kTiB},
    {"pb", 1'000'000'000'000'000},
    {"e", 1024 * 1024 * kTiB},
    {"eib", 1024 * 1024 * kTiB},
    {"eb", 1'000'000'000'000'000'000},
}};

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::array<Unit, 7> kTimeUnits{{
    {"", kSecond},
    {"us", 1'000},
    {"ms", 1'000'000},
    {"s", kSecond},
    {"min", 60 * kSecond},
    {"h", 3600 * kSecond},
    {"d", 24 * 3600 * kSecond},
}};

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_unit(std::string_view text, std::string_view unit) noexcept {
  if (text.size() != unit.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (lower(text[i]) != unit[i]) return false;
  }
  return true;
}

// A decimal number as digits / scale, so that `1.5` is exact.
struct Number {
  std::uint64_t digits = 0;
  std::uint64_t scale = 1;
};

// Takes a number from the front of `text`. More than 20 digits are no number that we need.
std::optional<Number> take_number(std::string_view& text) noexcept {
  Number number;
  std::size_t at = 0;
  int count = 0;
  bool point = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '.' && !point && count > 0) {
      point = true;
    } else if (is_digit(c)) {
      if (++count > 20) return std::nullopt;
      const Wide next = Wide{number.digits} * 10 + static_cast<unsigned>(c - '0');
      if (next > std::numeric_limits<std::uint64_t>::max()) return std::nullopt;
      number.digits = static_cast<std::uint64_t>(next);
      if (point) number.scale *= 10;
    } else {
      break;
    }
  }
  if (count == 0 || text[at - 1] == '.') return std::nullopt;
  text.remove_prefix(at);
  return number;
}

// number × unit, rounded down.
template <std::size_t N>
Result<std::uint64_t> parse_with_units(std::string_view text, const std::array<Unit, N>& units,
                                       std::uint64_t min, std::uint64_t max) {
  const std::optional<Number> number = take_number(text);
  if (!number) return fail(EINVAL, "not a number");
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  for (const Unit& unit : units) {
    if (!same_unit(text, unit.name)) continue;
    const Wide value = Wide{number->digits} * unit.factor / number->scale;
    if (value < min || value > max) return fail(ERANGE, "out of bounds");
    return static_cast<std::uint64_t>(value);
  }
  return fail(EINVAL, "unknown unit");
}

}  // namespace

std::uint64_t SizeLimit::of(std::uint64_t capacity) const noexcept {
  return percent == 0 ? bytes : static_cast<std::uint64_t>(Wide{capacity} * percent / 100);
}

Result<std::uint64_t> parse_size(std::string_view text, std::uint64_t min, std::uint64_t max) {
  return parse_with_units(text, kSizeUnits, min, max);
}

Result<SizeLimit> parse_size_limit(std::string_view text, std::uint64_t min,
                                   std::uint64_t max) {
  if (!text.empty() && text.back() == '%') {
    text.remove_suffix(1);
    if (text.find('.') != std::string_view::npos) return fail(EINVAL, "not a whole percentage");
    static constexpr std::array<Unit, 1> kPlain{{{"", 1}}};
    const std::uint64_t percent = TRY(parse_with_units(text, kPlain, 1, 100));
    return SizeLimit{.bytes = 0, .percent = static_cast<std::uint32_t>(percent)};
  }
  return SizeLimit{.bytes = TRY(parse_size(text, min, max)), .percent = 0};
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text,
                                                std::chrono::nanoseconds min,
                                                std::chrono::nanoseconds max) {
  const std::uint64_t nanos =
      TRY(parse_with_units(text, kTimeUnits, static_cast<std::uint64_t>(min.count()),
                           static_cast<std::uint64_t>(max.count())));
  return std::chrono::nanoseconds{static_cast<std::int64_t>(nanos)};
}

std::string format_size(std::uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  static constexpr std::array<const char*, 6> kNames{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.95 would be printed as 1024.0.
  while (value >= 1023.95 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return fmt::format("{} {}", text, kNames[unit]);
}

std::string format_duration(std::chrono::nanoseconds duration) {
  const std::int64_t ns = duration.count();
  if (ns < 0) return "-" + format_duration(std::chrono::nanoseconds{-ns});
  const std::int64_t seconds = ns / static_cast<std::int64_t>(kSecond);
  if (seconds >= 24 * 3600)
    return fmt::format("{} d {} h", seconds / (24 * 3600), seconds / 3600 % 24);
  if (seconds >= 3600) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  if (seconds >= 60) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  if (seconds >= 1) return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
  if (ns >= 1'000'000) return fmt::format("{} ms", ns / 1'000'000);
  return fmt::format("{} us", ns / 1'000);
}

}  // namespace kvcachefs
