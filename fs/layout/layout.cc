#include "fs/layout/layout.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "fs/layout/pattern.h"
#include "fs/layout/table.h"
#include "fs/layout/words.h"

namespace kvcachefs {
namespace layout {
namespace {

constexpr std::size_t kLongestPath = 4096;
constexpr std::size_t kLongestName = 255;

// Bit n stands for row n.
using RowSet = std::uint64_t;
constexpr std::size_t kRowCount = std::size(kRows);
static_assert(kRowCount <= 64, "a wider RowSet is needed");
constexpr RowSet row_bit(std::size_t row) noexcept { return RowSet{1} << row; }

template <class Table>
constexpr auto compile_all(const Table& table) {
  std::array<Pattern, std::extent_v<Table>> patterns{};
  for (std::size_t at = 0; at < patterns.size(); ++at)
    patterns[at] = compile(table[at].pattern);
  return patterns;
}
constexpr auto kPatterns = compile_all(kRows);
constexpr auto kFormPatterns = compile_all(kForms);

// ---- which rows a name's first and last bytes leave

constexpr bool is_digit(unsigned byte) noexcept { return byte >= '0' && byte <= '9'; }
constexpr bool is_hex(unsigned byte) noexcept {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f');
}

template <class Words>
constexpr bool ends_a_word(const Words& words, unsigned byte) noexcept {
  for (const std::string_view word : words)
    if (static_cast<unsigned char>(word.back()) == byte) return true;
  return false;
}

// Whether the text of an item can end with this byte. {tail@} may be nothing, so it says nothing.
constexpr bool may_end_with(const Item& item, unsigned byte) noexcept {
  switch (item.field) {
    case Field::kLiteral:
      return static_cast<unsigned char>(item.text.back()) == byte;
    case Field::kHash:
    case Field::kHashHex:
    case Field::kHashInteger:
    case Field::kHex:
    case Field::kConfig:
      return is_hex(byte);
    case Field::kRank:
    case Field::kWorld:
    case Field::kGroup:
    case Field::kPosition:
    case Field::kDigits:
      return is_digit(byte);
    case Field::kDtype:
      return ends_a_word(kTypeNames, byte);
    default:
      return true;
  }
}

constexpr bool may_begin_with(const Item& item, unsigned byte) noexcept {
  switch (item.field) {
    case Field::kLiteral:
      return static_cast<unsigned char>(item.text.front()) == byte;
    case Field::kHashInteger:
      return is_hex(byte) || byte == '-';
    case Field::kHash:
    case Field::kHashHex:
    case Field::kHex:
    case Field::kConfig:
      return is_hex(byte);
    case Field::kPosition:
    case Field::kDigits:
      return is_digit(byte);
    default:
      return true;
  }
}

constexpr bool name_may_end_with(const Pattern& pattern, unsigned byte) noexcept {
  std::size_t last = pattern.count;
  while (last > pattern.name_begin) {
    const Item& item = pattern.items[last - 1];
    if (item.field != Field::kGroupEnd) return may_end_with(item, byte);
    if (may_end_with(pattern.items[last - 2], byte)) return true;
    last -= item.span + std::size_t{2};
  }
  return true;
}

constexpr auto kRowsByFirstByte = [] {
  std::array<RowSet, 256> rows{};
  for (std::size_t row = 0; row < kRowCount; ++row)
    for (unsigned byte = 0; byte < rows.size(); ++byte)
      if (may_begin_with(kPatterns[row].items[kPatterns[row].name_begin], byte))
        rows[byte] |= row_bit(row);
  return rows;
}();
constexpr auto kRowsByLastByte = [] {
  std::array<RowSet, 256> rows{};
  for (std::size_t row = 0; row < kRowCount; ++row)
    for (unsigned byte = 0; byte < rows.size(); ++byte)
      if (name_may_end_with(kPatterns[row], byte)) rows[byte] |= row_bit(row);
  return rows;
}();

// The rows that count: untold, or told this runtime.
constexpr RowSet kUntoldRows = [] {
  RowSet rows = 0;
  for (std::size_t row = 0; row < kRowCount; ++row)
    if ((kRows[row].flags & kToldOnly) == 0) rows |= row_bit(row);
  return rows;
}();
constexpr auto kToldRows = [] {
  std::array<RowSet, kRuntimeCount> rows{};
  for (std::size_t row = 0; row < kRowCount; ++row)
    rows[static_cast<std::size_t>(kRows[row].runtime)] |= row_bit(row);
  return rows;
}();
constexpr auto kRowsOfForm = [] {
  std::array<RowSet, std::size(kForms)> rows{};
  for (std::size_t row = 0; row < kRowCount; ++row)
    for (std::size_t form = 0; form < rows.size(); ++form)
      if ((kRows[row].temporaries & kForms[form].form) != 0) rows[form] |= row_bit(row);
  return rows;
}();

// Of `rows`, those whose closing literal and least length the name has. The name may lack `cut`.
RowSet rows_of_name(RowSet rows, std::string_view name, std::string_view cut) noexcept {
  const std::string_view end = cut.empty() ? name : cut;
  if (name.empty()) return 0;
  rows &= kRowsByFirstByte[static_cast<unsigned char>(name.front())] &
          kRowsByLastByte[static_cast<unsigned char>(end.back())];
  for (RowSet left = rows; left != 0; left &= left - 1) {
    const auto row = static_cast<std::size_t>(__builtin_ctzll(left));
    const Pattern& pattern = kPatterns[row];
    const Item& last = pattern.items[pattern.count - 1];
    const bool ends_so = last.field != Field::kLiteral ||
                         (cut.empty() ? name.ends_with(last.text) : cut == last.text);
    if (!ends_so || name.size() + cut.size() < pattern.name_min) rows &= ~row_bit(row);
  }
  return rows;
}

// ---- temporaries

// Whether the name can be of one of the forms: all have ".tmp" at the end, or before digits and dots.
bool looks_temporary(std::string_view name) noexcept {
  constexpr std::size_t kLongestEnd = 72;  // of kThread, with its ".tmp."
  if (name.size() < 5) return false;
  const char last = name.back();
  if (last == 'p') return name.ends_with(".tmp");
  if (!((last >= '0' && last <= '9') || (last >= 'a' && last <= 'f'))) return false;
  const std::string_view end =
      name.size() <= kLongestEnd ? name : name.substr(name.size() - kLongestEnd);
  for (std::size_t at = end.find('.'); at != std::string_view::npos; at = end.find('.', at + 1))
    if (end.substr(at).starts_with(".tmp")) return true;
  return false;
}

bool may_be_of_form(std::size_t form, std::string_view name) noexcept {
  const Pattern& pattern = kFormPatterns[form];
  return may_end_with(pattern.items[pattern.count - 1],
                      static_cast<unsigned char>(name.back()));
}

// What is left of a temporary's name when the form's own text is taken off; empty: another form.
std::string_view stem_of(std::size_t form, std::string_view name) noexcept {
  Captures captures;
  return match_name(kFormPatterns[form], name, "", captures) ? captures.free
                                                             : std::string_view();
}

// ---- the answer

Recognized answer(const Row& row, const Captures& captures) noexcept {
  Recognized file;
  file.runtime = row.runtime;
  file.kind = row.kind;
  file.policy = row.policy;
  file.temporary = (row.flags & kTemporary) != 0;
  file.immutable = (row.flags & kImmutable) != 0;
  file.model = captures.model;
  file.config = captures.config;
  file.prefix_hash = captures.hash;
  file.part = captures.part;
  file.world = captures.ranks.world;
  file.rank = captures.ranks.rank;
  file.group = captures.group;
  file.session = captures.session;
  file.position = captures.position;
  if (captures.ranks.stages && captures.ranks.stage) {
    // Workers are numbered stage by stage.
    const std::uint64_t ways = captures.ranks.world.value_or(1);
    const std::uint64_t world = ways * *captures.ranks.stages;
    if (world <= UINT32_MAX) {
      file.world = static_cast<std::uint32_t>(world);
      file.rank = static_cast<std::uint32_t>(ways * *captures.ranks.stage +
                                             captures.ranks.rank.value_or(0));
    }
  }
  return file;
}

std::optional<Recognized> first_match(RowSet rows, std::string_view path,
                                      std::string_view cut) noexcept {
  for (; rows != 0; rows &= rows - 1) {
    const auto row = static_cast<std::size_t>(__builtin_ctzll(rows));
    Captures captures;
    if (match(kPatterns[row], path, cut, captures)) return answer(kRows[row], captures);
  }
  return std::nullopt;
}

std::optional<Recognized> match_temporary(RowSet rows, std::string_view path,
                                          std::string_view name) noexcept {
  for (std::size_t form = 0; form < std::size(kForms); ++form) {
    if ((rows & kRowsOfForm[form]) == 0 || !may_be_of_form(form, name)) continue;
    const std::string_view stem = stem_of(form, name);
    const std::string_view completion = kForms[form].completion;
    const RowSet left = rows_of_name(rows & kRowsOfForm[form], stem, completion);
    if (left == 0) continue;
    const std::string_view final_stem = path.substr(0, path.size() - name.size() + stem.size());
    // No file can get a name that is longer.
    if (stem.size() + completion.size() > kLongestName ||
        final_stem.size() + completion.size() > kLongestPath)
      continue;
    auto file = first_match(left, final_stem, completion);
    if (!file) continue;
    file->temporary = true;
    file->final_stem = final_stem;
    file->final_suffix = completion;
    return file;
  }
  return std::nullopt;
}

std::optional<Recognized> find(RowSet rows, std::string_view path,
                               std::string_view name) noexcept {
  std::optional<Recognized> file;
  if (name.size() > kLongestName) return file;
  if (looks_temporary(name)) file = match_temporary(rows, path, name);
  if (!file) file = first_match(rows_of_name(rows, name, ""), path, "");
  return file;
}

bool has_empty_component(std::string_view path) noexcept {
  return path.starts_with('/') || path.find("//") != std::string_view::npos;
}

}  // namespace
}  // namespace layout

std::optional<Recognized> recognize(std::string_view path,
                                    std::optional<Runtime> told) noexcept {
  using namespace layout;
  if (path.size() > kLongestPath) return std::nullopt;
  const std::string_view name = last_component(path);
  const RowSet rows = told ? kToldRows[static_cast<std::size_t>(*told)] : kUntoldRows;
  auto file = find(rows, path, name);
  if (file && has_empty_component(path)) return std::nullopt;
  return file;
}

bool may_be_recognized(std::string_view name) noexcept {
  using namespace layout;
  if (name.size() > kLongestName) return false;
  return looks_temporary(name) || rows_of_name(kUntoldRows, name, "") != 0;
}

bool is_temporary_name(std::string_view name) noexcept {
  constexpr std::string_view kMark = ".tmp";
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  constexpr std::string_view kBetween = "._-";
  constexpr std::size_t kShortNumber = 8;  // of kShort
  const auto is_hex = [&](char c) { return kHex.find(c) != std::string_view::npos; };
  const auto is_between = [&](char c) { return kBetween.find(c) != std::string_view::npos; };
  for (std::size_t at = name.find(kMark); at != std::string_view::npos;
       at = name.find(kMark, at + 1)) {
    const std::string_view rest = name.substr(at + kMark.size());
    if (rest.empty()) return true;
    if (is_between(rest.front()) && std::all_of(rest.begin(), rest.end(), [&](char c) {
          return is_hex(c) || is_between(c);
        }))
      return true;
    if (rest.size() == kShortNumber && std::all_of(rest.begin(), rest.end(), is_hex))
      return true;
  }
  return false;
}

bool has_temporary_name(std::string_view path) noexcept {
  for (;;) {
    const std::size_t slash = path.find('/');
    if (is_temporary_name(path.substr(0, slash))) return true;
    if (slash == std::string_view::npos) return false;
    path.remove_prefix(slash + 1);
  }
}

std::string final_path(const Recognized& file) {
  std::string path(file.final_stem);
  path += file.final_suffix;
  return path;
}

}  // namespace kvcachefs
