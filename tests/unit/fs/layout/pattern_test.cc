// The language of the table.
#include "fs/layout/pattern.h"

#include <gtest/gtest.h>

#include <string>

#include "fs/layout/decimal.h"
#include "fs/layout/table.h"

namespace kvcachefs::layout {
namespace {

bool matches(const Pattern& pattern, std::string_view path) {
  Captures captures;
  return match(pattern, path, "", captures);
}

TEST(Pattern, TextStandsForItself) {
  constexpr Pattern kPattern = compile("a/b.c");
  EXPECT_TRUE(matches(kPattern, "a/b.c"));
  EXPECT_TRUE(matches(kPattern, "x/a/b.c"));
  for (const char* path : {"b.c", "xa/b.c", "a/b.cd", "a/x/b.c", "a//b.c", ""})
    EXPECT_FALSE(matches(kPattern, path)) << path;
}

TEST(Pattern, ASlashInFrontIsTheRoot) {
  constexpr Pattern kPattern = compile("/a/{digits:1-3}");
  EXPECT_TRUE(matches(kPattern, "a/12"));
  EXPECT_FALSE(matches(kPattern, "x/a/12"));
  EXPECT_FALSE(matches(kPattern, "a/1234"));
}

TEST(Pattern, FreeTextIsWhatIsLeft) {
  constexpr Pattern kPattern = compile("x{model}_{rank}");
  Captures captures;
  ASSERT_TRUE(match(kPattern, "xa_1_b_2", "", captures));
  EXPECT_EQ("a_1_b", captures.model);
  EXPECT_EQ(2u, captures.ranks.rank);
  EXPECT_FALSE(matches(kPattern, "x_2"));
}

TEST(Pattern, AnOptionalTextIsThereIfItCanBe) {
  constexpr Pattern kPattern = compile("{any}[_{rank}_{world}][!-{digits}]");
  Captures captures;
  ASSERT_TRUE(match(kPattern, "a_0_2-7", "", captures));
  EXPECT_EQ("a", captures.free);
  EXPECT_EQ(2u, captures.ranks.world);
  EXPECT_EQ("7", captures.part);
  captures = {};
  ASSERT_TRUE(match(kPattern, "a_2_0", "", captures));  // no rank of that world
  EXPECT_EQ("a_2_0", captures.free);
  EXPECT_EQ(std::nullopt, captures.ranks.world);
}

TEST(Pattern, ACutNameLacksItsClosingText) {
  constexpr Pattern kPattern = compile("{model}_{rank}.data");
  Captures captures;
  EXPECT_TRUE(match(kPattern, "d/m_1", ".data", captures));
  EXPECT_FALSE(match(kPattern, "d/m_1", ".bin", captures));
  EXPECT_FALSE(match(kPattern, "d/m_1.data", ".data", captures));
}

TEST(Pattern, DigitsOfAHashAsADecimalNumber) {
  const struct {
    const char* hex;
    const char* decimal;
  } examples[] = {
      {"0", "0"},
      {"3b9aca00", "1000000000"},
      {"-ff", "-255"},
      {"ffffffffffffffff", "18446744073709551615"},
      {"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
       "115792089237316195423570985008687907853269984665640564039457584007913129639935"},
      {"", ""},
  };
  for (const auto& example : examples)
    EXPECT_EQ(example.decimal, std::string(decimal_of_hex(example.hex).view()));
}

// A runtime without a row cannot be told, and one whose rows are all the same twice is a slip.
TEST(Table, HasRowsForEveryRuntimeAndASourceForEveryRow) {
  bool has_rows[kRuntimeCount] = {};
  for (const Row& row : kRows) {
    has_rows[static_cast<std::size_t>(row.runtime)] = true;
    EXPECT_FALSE(row.source.empty()) << row.pattern;
    EXPECT_FALSE(row.pattern.empty());
  }
  for (std::size_t at = 1; at < kRuntimeCount; ++at)
    EXPECT_TRUE(has_rows[at]) << name_of(static_cast<Runtime>(at));
  EXPECT_FALSE(has_rows[0]);
}

}  // namespace
}  // namespace kvcachefs::layout
