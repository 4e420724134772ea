// The little language in which table.h writes down how runtimes name their files.
//
//   {model}_{config:12}_r{rank}/{hash[0:3]}/{hash[3:5]}_g{group}/{hash:16-128}.bin
//
// A pattern describes the last components of a path; with a slash in front, the whole path. Text
// stands for itself, {field} for one of:
//
//   {hash:A-B}  A to B lower-case hex digits, in pairs      {hashint:A-B} any number of them, and
//               (bytes); {hash:N} exactly N                               perhaps '-' (a signed number)
//   {hashhex:A-B} any number of them, without a sign
//   {hash[A:B]} digits A to B (not with) of the hash        {decimal[A:B]} the same of the hash as a
//                                                                         decimal number
//   {rank} {world} {group} {position}  decimal numbers      {ways}        a factor of world
//   {stages} {stage}  of a pipeline: factor of world, rank  {packed}      8 hex digits: world, rank,
//                                                                         local world, local rank
//   {groupx}    a group in hex                            {config:N}    N hex digits
//   {digits:A-B} {hex:N} {word} {a-p}  not remembered: digits, hex digits, text without '_' that is no
//               number, one letter
//   {dtype}     the name of a type                          {pool} {half} SGLang's words
//   {model@} {model%}  text up to "@", or "%40"             {salt}        text without '@'
// and the free ones:
//   {model} {part} {session} {any}  text                    {tail@} {tail%} nothing, or "@" ("%40")
//   {model/}    up to two components                                      and text
//
// [text] may be missing; what [!text] matches is remembered as the part. The free text of one component
// is what is left when everything behind it was matched from the right and then everything before
// it from the left. So there is one at most, [text] is there if it can be, nothing is ever tried
// again, and matching is linear. Numbers have no leading zeros and at most 9 digits.
//
// Patterns are compiled by the compiler; one that breaks a rule does not build.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvcachefs::layout {

enum class Field : std::uint8_t {
  kLiteral,
  kSlash,
  kGroupBegin,  // [ … ]: `span` items lie between the two
  kGroupEnd,
  kHash,
  kHashInteger,
  kHashHex,
  kHashSlice,
  kDecimalSlice,
  kRank,
  kWorld,
  kWays,
  kStage,
  kStages,
  kPacked,
  kGroup,
  kGroupHex,
  kPosition,
  kDigits,
  kHex,
  kConfig,
  kWord,
  kLetter,
  kDtype,
  kPool,
  kHalf,
  kUntil,  // {model@}: `text` is the separator
  kSalt,
  // The free ones.
  kModel,
  kPart,
  kSession,
  kAny,
  kTail,  // `text` is the separator
  kDirectories,
};

struct Item {
  Field field = Field::kLiteral;
  std::uint8_t min = 0;
  std::uint8_t max = 0;
  std::uint8_t span = 0;
  bool is_part = false;   // of [! … ]
  std::string_view text;  // a literal, or a separator
};

constexpr bool is_free(const Item& item) noexcept { return item.field >= Field::kModel; }

struct Pattern {
  static constexpr std::size_t kMaxItems = 40;
  std::array<Item, kMaxItems> items{};
  std::size_t count = 0;
  bool rooted = false;
  // For the quick look at a name: where the last component's items begin, how short it can be.
  std::size_t name_begin = 0;
  std::size_t name_min = 0;
};

// Of what may stand in an optional text.
struct Ranks {
  std::optional<std::uint32_t> world;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> stages;
  std::optional<std::uint32_t> stage;
};

struct Captures {
  std::string_view model;
  std::string_view config;
  std::string_view hash;
  std::string_view part;
  std::string_view session;
  Ranks ranks;
  std::optional<std::uint32_t> group;
  std::optional<std::uint32_t> position;
  std::string_view free;  // what {any} was
};

// What is behind the last slash.
std::string_view last_component(std::string_view path) noexcept;

// `cut` is what of the last component's closing literal `path` lacks: that of a temporary whose
// extension was replaced. Empty components of the path match nothing.
bool match(const Pattern& pattern, std::string_view path, std::string_view cut,
           Captures& captures) noexcept;

// The last component of the pattern alone.
bool match_name(const Pattern& pattern, std::string_view name, std::string_view cut,
                Captures& captures) noexcept;

// Compiling. A call of bad_pattern() is no constant expression: the compiler points at it.
void bad_pattern(const char* why);

namespace detail {

struct FieldName {
  std::string_view name;
  Field field;
  std::uint8_t min;
  std::uint8_t max;
  std::string_view text;
};

inline constexpr std::uint8_t kNumberDigits = 9;
inline constexpr FieldName kFieldNames[] = {
    {"hash", Field::kHash, 0, 0, ""},
    {"hashint", Field::kHashInteger, 0, 0, ""},
    {"hashhex", Field::kHashHex, 0, 0, ""},
    {"rank", Field::kRank, 1, kNumberDigits, ""},
    {"world", Field::kWorld, 1, kNumberDigits, ""},
    {"ways", Field::kWays, 1, kNumberDigits, ""},
    {"stage", Field::kStage, 1, kNumberDigits, ""},
    {"stages", Field::kStages, 1, kNumberDigits, ""},
    {"packed", Field::kPacked, 8, 8, ""},
    {"group", Field::kGroup, 1, kNumberDigits, ""},
    {"groupx", Field::kGroupHex, 1, 7, ""},
    {"position", Field::kPosition, 1, kNumberDigits, ""},
    {"digits", Field::kDigits, 1, 20, ""},
    {"hex", Field::kHex, 0, 0, ""},
    {"config", Field::kConfig, 0, 0, ""},
    {"word", Field::kWord, 1, 255, ""},
    {"a-p", Field::kLetter, 1, 1, ""},
    {"dtype", Field::kDtype, 4, 255, ""},
    {"pool", Field::kPool, 2, 255, ""},
    {"half", Field::kHalf, 1, 255, ""},
    {"model@", Field::kUntil, 1, 255, "@"},
    {"model%", Field::kUntil, 1, 255, "%40"},
    {"salt", Field::kSalt, 1, 255, ""},
    {"model", Field::kModel, 1, 255, ""},
    {"part", Field::kPart, 1, 255, ""},
    {"session", Field::kSession, 1, 255, ""},
    {"any", Field::kAny, 1, 255, ""},
    {"tail@", Field::kTail, 0, 255, "@"},
    {"tail%", Field::kTail, 0, 255, "%40"},
    {"model/", Field::kDirectories, 1, 255, ""},
};

constexpr std::uint8_t small_number(std::string_view text) {
  unsigned value = 0;
  if (text.empty() || text.size() > 3) bad_pattern("a number is expected");
  for (const char c : text) {
    if (c < '0' || c > '9') bad_pattern("a number is expected");
    value = value * 10 + static_cast<unsigned>(c - '0');
  }
  if (value > 255) bad_pattern("a number up to 255 is expected");
  return static_cast<std::uint8_t>(value);
}

// The two numbers of "A<by>B".
constexpr void read_range(std::string_view text, char by, Item& item) {
  const std::size_t at = text.find(by);
  item.min = small_number(text.substr(0, at));
  item.max = at == std::string_view::npos ? item.min : small_number(text.substr(at + 1));
  if (item.min > item.max) bad_pattern("a range that is empty");
}

constexpr Item read_field(std::string_view text) {
  Item item;
  if (text.ends_with(']')) {
    const std::size_t at = text.find('[');
    const std::string_view name = text.substr(0, at);
    if (name != "hash" && name != "decimal") bad_pattern("only a hash has digits");
    item.field = name == "hash" ? Field::kHashSlice : Field::kDecimalSlice;
    read_range(text.substr(at + 1, text.size() - at - 2), ':', item);
    return item;
  }
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (const FieldName& known : kFieldNames) {
    if (known.name != name) continue;
    item.field = known.field;
    item.min = known.min;
    item.max = known.max;
    item.text = known.text;
    if (colon != std::string_view::npos) read_range(text.substr(colon + 1), '-', item);
    if (item.max == 0) bad_pattern("a field that needs a length has none");
    return item;
  }
  bad_pattern("no such field");
  return item;
}

// The shortest text an item can match.
constexpr std::size_t shortest(const Item& item) noexcept {
  switch (item.field) {
    case Field::kLiteral:
      return item.text.size();
    case Field::kHashSlice:
    case Field::kDecimalSlice:
      return std::size_t{item.max} - item.min;
    default:
      return item.min;
  }
}

// Whether all that the field remembers is in Ranks.
constexpr bool may_be_optional(const Item& item) noexcept {
  switch (item.field) {
    case Field::kLiteral:
    case Field::kRank:
    case Field::kWorld:
    case Field::kStage:
    case Field::kStages:
    case Field::kDigits:
    case Field::kHex:
    case Field::kConfig:
    case Field::kWord:
    case Field::kPool:
    case Field::kHalf:
      return true;
    default:
      return false;
  }
}

constexpr void check_and_measure(Pattern& pattern) {
  std::size_t free = 0;
  bool optional = false;
  for (std::size_t at = 0; at < pattern.count; ++at) {
    const Item& item = pattern.items[at];
    if (item.field == Field::kSlash) {
      if (optional) bad_pattern("a slash in an optional text");
      free = 0;
      pattern.name_begin = at + 1;
      pattern.name_min = 0;
    } else if (item.field == Field::kGroupBegin) {
      optional = true;
    } else if (item.field == Field::kGroupEnd) {
      optional = false;
    } else {
      if (is_free(item) && (optional || ++free > 1)) bad_pattern("more than one free text");
      if (item.field == Field::kUntil && free != 0) bad_pattern("{model@} behind a free text");
      if (optional && !may_be_optional(item)) bad_pattern("a field that [ ] cannot undo");
      if (!optional) pattern.name_min += shortest(item);
    }
  }
  if (optional) bad_pattern("[ without ]");
  if (pattern.name_begin == pattern.count) bad_pattern("an empty name");
}

}  // namespace detail

constexpr Pattern compile(std::string_view text) {
  Pattern pattern;
  const auto add = [&pattern](const Item& item) {
    if (pattern.count == Pattern::kMaxItems) bad_pattern("too long");
    pattern.items[pattern.count++] = item;
  };
  if (text.starts_with('/')) {
    pattern.rooted = true;
    text.remove_prefix(1);
  }
  std::size_t group = 0;
  while (!text.empty()) {
    std::size_t used = 1;
    Item item;
    switch (text[0]) {
      case '/':
        item.field = Field::kSlash;
        break;
      case '[':
        item.field = Field::kGroupBegin;
        item.is_part = text.starts_with("[!");
        used = item.is_part ? 2 : 1;
        group = pattern.count;
        break;
      case ']':
        item = pattern.items[group];
        if (item.field != Field::kGroupBegin) bad_pattern("] without [");
        item.field = Field::kGroupEnd;
        item.span = static_cast<std::uint8_t>(pattern.count - group - 1);
        pattern.items[group].span = item.span;
        break;
      case '{':
        used = text.find('}') + 1;
        if (used == 0) bad_pattern("{ without }");
        item = detail::read_field(text.substr(1, used - 2));
        break;
      default:
        used = text.find_first_of("/[]{");
        if (used == std::string_view::npos) used = text.size();
        item.text = text.substr(0, used);
    }
    add(item);
    text.remove_prefix(used);
  }
  detail::check_and_measure(pattern);
  return pattern;
}

}  // namespace kvcachefs::layout
