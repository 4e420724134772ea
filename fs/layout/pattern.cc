#include "fs/layout/pattern.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "fs/layout/decimal.h"
#include "fs/layout/words.h"

namespace kvcachefs::layout {
namespace {

enum class Side { kFront, kBack };

// Classes of bytes: names are looked at on every lookup, so one load decides.
enum Class : std::uint8_t {
  kDigit = 1 << 0,
  kHexDigit = 1 << 1,
  kTypeLetter = 1 << 2,
  kWordLetter = 1 << 3,
  kBucketLetter = 1 << 4,
  kPoolLetter = 1 << 5,
};
constexpr auto kClasses = [] {
  std::array<std::uint8_t, 256> classes{};
  for (unsigned byte = 0; byte < classes.size(); ++byte) {
    const bool digit = byte >= '0' && byte <= '9';
    const bool small = byte >= 'a' && byte <= 'z';
    if (digit) classes[byte] |= kDigit;
    if (digit || (byte >= 'a' && byte <= 'f')) classes[byte] |= kHexDigit;
    if (digit || small || byte == '_') classes[byte] |= kTypeLetter;
    if (digit || small) classes[byte] |= kPoolLetter;
    if (byte != '_') classes[byte] |= kWordLetter;
    if (byte >= 'a' && byte <= 'p') classes[byte] |= kBucketLetter;
  }
  return classes;
}();
bool is(char c, Class wanted) noexcept {
  return (kClasses[static_cast<unsigned char>(c)] & wanted) != 0;
}

// The run of such bytes at one side of the text. Of a run longer than `max` no more is looked at than
// tells that it is longer.
std::size_t run_length(std::string_view text, Side side, std::size_t max,
                       Class wanted) noexcept {
  const std::size_t end = text.size() <= max ? text.size() : max + 1;
  std::size_t length = 0;
  if (side == Side::kFront) {
    while (length < end && is(text[length], wanted)) ++length;
  } else {
    const char* const last = text.data() + text.size() - 1;
    while (length < end && is(*(last - length), wanted)) ++length;
  }
  return length;
}

std::string_view take(std::string_view& text, Side side, std::size_t length) noexcept {
  std::string_view taken;
  if (side == Side::kFront) {
    taken = text.substr(0, length);
    text.remove_prefix(length);
  } else {
    taken = text.substr(text.size() - length);
    text.remove_suffix(length);
  }
  return taken;
}

// Fails on a longer run, too: a name with too many digits is not cut to the right number of them.
bool take_run(std::string_view& text, Side side, const Item& item, Class wanted,
              std::string_view& taken) noexcept {
  const std::size_t length = run_length(text, side, item.max, wanted);
  if (length < item.min || length > item.max) return false;
  taken = take(text, side, length);
  return true;
}

bool take_text(std::string_view& text, Side side, std::string_view wanted) noexcept {
  if (side == Side::kFront ? !text.starts_with(wanted) : !text.ends_with(wanted)) return false;
  take(text, side, wanted.size());
  return true;
}

bool take_number(std::string_view& text, Side side, const Item& item,
                 std::optional<std::uint32_t>& number) noexcept {
  std::string_view digits;
  if (!take_run(text, side, item, kDigit, digits)) return false;
  if (digits.size() > 1 && digits[0] == '0') return false;
  std::uint32_t value = 0;  // 9 digits fit
  for (const char c : digits) value = value * 10 + static_cast<std::uint32_t>(c - '0');
  number = value;
  return true;
}

bool take_hex(std::string_view& text, Side side, const Item& item,
              std::uint32_t& value) noexcept {
  std::string_view digits;
  if (!take_run(text, side, item, kHexDigit, digits)) return false;
  value = 0;  // 8 digits fit
  for (const char c : digits)
    value = value << 4 | static_cast<std::uint32_t>(is(c, kDigit) ? c - '0' : c - 'a' + 10);
  return true;
}

// The smallest view with both; views of one name.
std::string_view joined(std::string_view one, std::string_view other) noexcept {
  if (one.data() == nullptr) return other;
  const char* const begin = one.data() < other.data() ? one.data() : other.data();
  const char* const end = one.data() + one.size() > other.data() + other.size()
                              ? one.data() + one.size()
                              : other.data() + other.size();
  return {begin, static_cast<std::size_t>(end - begin)};
}

class Matcher {
 public:
  explicit Matcher(Captures& captures) noexcept : captures_(captures) {}

  bool component(const Item* first, const Item* last, std::string_view text) noexcept {
    while (first != last && !is_free(last[-1])) {
      if (last[-1].field == Field::kGroupEnd) {
        const Item* const begin = last - last[-1].span - 1;
        optional(begin, last - 1, Side::kBack, text);
        last = begin - 1;
      } else if (!one(*--last, Side::kBack, text)) {
        return false;
      }
    }
    while (first != last && !is_free(*first)) {
      if (first->field == Field::kGroupBegin) {
        const Item* const end = first + first->span + 1;
        optional(first + 1, end, Side::kFront, text);
        first = end + 1;
      } else if (!one(*first++, Side::kFront, text)) {
        return false;
      }
    }
    return first == last ? text.empty() : rest(*first, text);
  }

 private:
  // Takes the text of [first, last) when it is there and makes sense.
  void optional(const Item* first, const Item* last, Side side,
                std::string_view& text) noexcept {
    const bool is_part = first[-1].is_part;
    const Ranks before = captures_.ranks;
    std::string_view left = text;
    bool good = true;
    while (good && first != last)
      good = one(side == Side::kFront ? *first++ : *--last, side, left);
    if (!good || !makes_sense()) {
      captures_.ranks = before;
      return;
    }
    const std::size_t length = text.size() - left.size();
    const std::string_view taken = take(text, side, length);
    if (is_part) captures_.part = joined(captures_.part, taken.substr(1));
  }

  // SGLang writes a pipeline only when it has stages, and counts ranks from 0: that is how "_0_8" (a
  // rank and a world) and "_2_1" (stages and a stage) are told apart.
  [[nodiscard]] bool makes_sense() const noexcept {
    const Ranks& c = captures_.ranks;
    return (!c.stages || !c.stage || (*c.stages > 1 && *c.stage < *c.stages)) &&
           (!c.world || !c.rank || *c.rank < *c.world);
  }

  bool one(const Item& item, Side side, std::string_view& text) noexcept {
    std::string_view ignored;
    std::uint32_t value = 0;
    switch (item.field) {
      case Field::kLiteral:
        return take_text(text, side, item.text);
      case Field::kHash:
        return take_run(text, side, item, kHexDigit, captures_.hash) &&
               captures_.hash.size() % 2 == 0;
      case Field::kHashHex:
        return take_run(text, side, item, kHexDigit, captures_.hash);
      case Field::kHashInteger:
        return hash_integer(item, side, text);
      case Field::kHashSlice:
        return captures_.hash.size() >= item.max &&
               take_text(text, side,
                         captures_.hash.substr(item.min, std::size_t{item.max} - item.min));
      case Field::kDecimalSlice:
        return decimal_slice(item, side, text);
      case Field::kRank:
        return take_number(text, side, item, captures_.ranks.rank);
      case Field::kWorld:
        return take_number(text, side, item, captures_.ranks.world);
      case Field::kWays:
        return ways(item, side, text);
      case Field::kStage:
        return take_number(text, side, item, captures_.ranks.stage);
      case Field::kStages:
        return take_number(text, side, item, captures_.ranks.stages);
      case Field::kGroup:
        return take_number(text, side, item, captures_.group);
      case Field::kPosition:
        return take_number(text, side, item, captures_.position);
      case Field::kPacked:
        if (!take_hex(text, side, item, value)) return false;
        captures_.ranks.world = value >> 24;
        captures_.ranks.rank = value >> 16 & 0xff;
        return true;
      case Field::kGroupHex:
        if (!take_hex(text, side, item, value)) return false;
        captures_.group = value;
        return true;
      case Field::kDigits:
        return take_run(text, side, item, kDigit, ignored);
      case Field::kHex:
        return take_run(text, side, item, kHexDigit, ignored);
      case Field::kConfig:
        return take_run(text, side, item, kHexDigit, captures_.config);
      case Field::kWord:
        return word(side, text);
      case Field::kLetter:
        return take_run(text, side, item, kBucketLetter, ignored);
      case Field::kDtype:
        return dtype(item, side, text);
      case Field::kPool:
        return pool(side, text);
      case Field::kHalf:
        return half(side, text);
      case Field::kUntil:
        return side == Side::kFront && until(item, text);
      case Field::kSalt:
        return side == Side::kBack && salt(text);
      default:
        return false;
    }
  }

  bool rest(const Item& item, std::string_view text) noexcept {
    if (item.field == Field::kTail) {
      if (text.empty()) return true;
      if (!text.starts_with(item.text) || text.size() == item.text.size()) return false;
      captures_.part = text.substr(item.text.size());
      return true;
    }
    if (text.empty()) return false;
    switch (item.field) {
      case Field::kModel:
        // A temporary of a form we do not know is no model.
        if (text.find(".tmp") != std::string_view::npos) return false;
        captures_.model = text;
        return true;
      case Field::kPart:
        captures_.part = text;
        return true;
      case Field::kSession:
        captures_.session = text;
        return true;
      default:
        captures_.free = text;
        return true;
    }
  }

  bool hash_integer(const Item& item, Side side, std::string_view& text) noexcept {
    const std::string_view before = text;
    if (side == Side::kFront && text.starts_with('-')) text.remove_prefix(1);
    std::string_view digits;
    if (!take_run(text, side, item, kHexDigit, digits)) return false;
    if (side == Side::kBack && text.ends_with('-')) text.remove_suffix(1);
    captures_.hash = side == Side::kFront ? before.substr(0, before.size() - text.size())
                                          : before.substr(text.size());
    return true;
  }

  bool decimal_slice(const Item& item, Side side, std::string_view& text) noexcept {
    const DecimalText decimal = decimal_of_hex(captures_.hash);
    return decimal.view().size() >= item.max &&
           take_text(text, side,
                     decimal.view().substr(item.min, std::size_t{item.max} - item.min));
  }

  bool ways(const Item& item, Side side, std::string_view& text) noexcept {
    std::optional<std::uint32_t> factor;
    if (!take_number(text, side, item, factor) || *factor == 0) return false;
    const std::uint64_t product = std::uint64_t{captures_.ranks.world.value_or(1)} * *factor;
    if (product > std::numeric_limits<std::uint32_t>::max()) return false;
    captures_.ranks.world = static_cast<std::uint32_t>(product);
    return true;
  }

  static bool word(Side side, std::string_view& text) noexcept {
    const std::size_t length = run_length(text, side, 255, kWordLetter);
    if (length == 0) return false;
    const std::string_view taken = take(text, side, length);
    return run_length(taken, side, 255, kDigit) != length;
  }

  // Between separators any name of a type will do; between underscores it is one of a list.
  static bool dtype(const Item& item, Side side, std::string_view& text) noexcept {
    std::string_view ignored;
    if (side == Side::kFront) return take_run(text, side, item, kTypeLetter, ignored);
    for (const std::string_view name : kTypeNames)
      if (take_text(text, side, name)) return true;
    return false;
  }

  static bool pool(Side side, std::string_view& text) noexcept {
    for (const std::string_view name : kPoolNames)
      if (take_text(text, side, name)) return true;
    // One of a newer SGLang; before the model its end shows.
    const std::size_t length = run_length(text, side, 255, kPoolLetter);
    if (side == Side::kBack || length == 0) return false;
    take(text, side, length);
    return true;
  }

  static bool half(Side side, std::string_view& text) noexcept {
    for (const std::string_view name : kHalfNames)
      if (take_text(text, side, name)) return true;
    std::string_view left = text;
    const std::size_t digits = run_length(left, side, 9, kDigit);
    if (side != Side::kBack || digits == 0) return false;
    left.remove_suffix(digits);
    if (!take_text(left, side, "conv_")) return false;
    text = left;
    return true;
  }

  bool until(const Item& item, std::string_view& text) noexcept {
    const std::size_t at = text.find(item.text);
    if (at == std::string_view::npos || at == 0) return false;
    captures_.model = text.substr(0, at);
    text.remove_prefix(at);
    return true;
  }

  bool salt(std::string_view& text) noexcept {
    const std::size_t at = text.rfind('@');
    if (at == std::string_view::npos || at + 1 == text.size()) return false;
    captures_.part = take(text, Side::kBack, text.size() - at - 1);
    return true;
  }

  Captures& captures_;
};

// The last component of the path, which loses it and the slash before it.
std::string_view take_component(std::string_view& path) noexcept {
  const std::string_view name = last_component(path);
  path.remove_suffix(name.size() == path.size() ? name.size() : name.size() + 1);
  return name;
}

// {model/}: a model's name is "organisation/model", or one directory.
bool take_directories(std::string_view& path, Captures& captures) noexcept {
  std::string_view left = path;
  const std::string_view model = take_component(left);
  if (model.empty()) return false;
  const std::string_view organisation = take_component(left);
  captures.model = organisation.empty() ? model : joined(organisation, model);
  path = left;
  return true;
}

}  // namespace

std::string_view last_component(std::string_view path) noexcept {
  // string_view::rfind looks at byte after byte, and this runs on every lookup.
  const void* const slash = path.empty() ? nullptr : memrchr(path.data(), '/', path.size());
  if (slash == nullptr) return path;
  return path.substr(static_cast<std::size_t>(static_cast<const char*>(slash) - path.data()) +
                     1);
}

void bad_pattern(const char* why) {
  static_cast<void>(why);
  std::abort();
}

bool match(const Pattern& pattern, std::string_view path, std::string_view cut,
           Captures& captures) noexcept {
  // Most paths are not below prefix/.
  if (pattern.rooted && !path.starts_with(pattern.items[0].text)) return false;
  if (path.empty() || !match_name(pattern, take_component(path), cut, captures)) return false;
  Matcher matcher(captures);
  const Item* const begin = pattern.items.data();
  const Item* last = begin + pattern.name_begin;  // behind a slash, or the beginning
  while (last != begin) {
    --last;
    const Item* first = last;
    while (first != begin && first[-1].field != Field::kSlash) --first;
    if (path.empty()) return false;
    if (first + 1 == last && first->field == Field::kDirectories) {
      if (!take_directories(path, captures)) return false;
    } else if (!matcher.component(first, last, take_component(path))) {
      return false;
    }
    last = first;
  }
  return !pattern.rooted || path.empty();
}

bool match_name(const Pattern& pattern, std::string_view name, std::string_view cut,
                Captures& captures) noexcept {
  const Item* const first = pattern.items.data() + pattern.name_begin;
  const Item* last = pattern.items.data() + pattern.count;
  if (!cut.empty()) {
    if (last[-1].field != Field::kLiteral || last[-1].text != cut) return false;
    --last;
  }
  return Matcher(captures).component(first, last, name);
}

}  // namespace kvcachefs::layout
