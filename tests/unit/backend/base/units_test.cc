#include "backend/base/units.h"

#include <gtest/gtest.h>

#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;

TEST(Units, ReadsSizesWithEveryKindOfUnit) {
  EXPECT_EQ(0u, *parse_size("0"));
  EXPECT_EQ(4096u, *parse_size("4096"));
  EXPECT_EQ(4096u, *parse_size("4096B"));
  EXPECT_EQ(kKiB, *parse_size("1k"));
  EXPECT_EQ(2 * kTiB, *parse_size("2TiB"));
  EXPECT_EQ(500'000'000'000u, *parse_size("500GB"));
  EXPECT_EQ(3 * kGiB / 2, *parse_size("1.5 GiB"));
  EXPECT_EQ(1024 * kTiB, *parse_size("1pib"));
  EXPECT_EQ(10 * kMiB, *parse_size("10M"));
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "x", "-1", "+1", "1..5", "1.", ".5", "12XB", "1 2", "1GBs",
                           "0x10", "99999999999999999999", "GiB", "1e3", " 1", "1\t", "50%"}) {
    EXPECT_ERROR(EINVAL, parse_size(text)) << text;
  }
}

TEST(Units, KeepsSizesInBounds) {
  EXPECT_EQ(10u, *parse_size("10", 10, 20));
  EXPECT_EQ(20u, *parse_size("20", 10, 20));
  EXPECT_ERROR(ERANGE, parse_size("9", 10, 20));
  EXPECT_ERROR(ERANGE, parse_size("21", 10, 20));
  EXPECT_ERROR(ERANGE, parse_size("8EiB"));
  EXPECT_ERROR(ERANGE, parse_size("18446744073709551615EiB"));
}

TEST(Units, ReadsAShareOfADevice) {
  const Result<SizeLimit> share = parse_size_limit("80%");
  ASSERT_OK(share);
  EXPECT_EQ(80u, share->percent);
  EXPECT_EQ(800u, share->of(1000));
  EXPECT_EQ(UINT64_MAX / 100 * 80 + 12, share->of(UINT64_MAX)) << "no overflow";
  const Result<SizeLimit> bytes = parse_size_limit("1MiB");
  ASSERT_OK(bytes);
  EXPECT_EQ(kMiB, bytes->of(1000));
  EXPECT_ERROR(ERANGE, parse_size_limit("0%"));
  EXPECT_ERROR(ERANGE, parse_size_limit("101%"));
  EXPECT_ERROR(ERANGE, parse_size_limit("0"));
  EXPECT_ERROR(EINVAL, parse_size_limit("%"));
  EXPECT_ERROR(EINVAL, parse_size_limit("8k%"));
}

TEST(Units, ReadsDurations) {
  EXPECT_EQ(250ms, *parse_duration("250ms"));
  EXPECT_EQ(1500ms, *parse_duration("1.5"));
  EXPECT_EQ(90s, *parse_duration("1.5min"));
  EXPECT_EQ(24h, *parse_duration("1d"));
  EXPECT_EQ(5us, *parse_duration("5 us"));
  EXPECT_ERROR(EINVAL, parse_duration("5 parsecs"));
  EXPECT_ERROR(EINVAL, parse_duration(""));
  EXPECT_ERROR(ERANGE, parse_duration("2h", 0s, 1h));
  EXPECT_ERROR(ERANGE, parse_duration("1s", 2s, 1h));
}

TEST(Units, WritesSizes) {
  EXPECT_EQ("0 B", format_size(0));
  EXPECT_EQ("1023 B", format_size(1023));
  EXPECT_EQ("1 KiB", format_size(1024));
  EXPECT_EQ("1.5 GiB", format_size(3 * kGiB / 2));
  EXPECT_EQ("1 MiB", format_size(kMiB - 1));
  EXPECT_EQ("16 EiB", format_size(UINT64_MAX));
}

TEST(Units, WritesDurations) {
  EXPECT_EQ("0 us", format_duration(0ns));
  EXPECT_EQ("250 ms", format_duration(250ms));
  EXPECT_EQ("3.2 s", format_duration(3200ms));
  EXPECT_EQ("2 min 5 s", format_duration(125s));
  EXPECT_EQ("2 h 5 min", format_duration(125min));
  EXPECT_EQ("3 d 1 h", format_duration(73h));
  EXPECT_EQ("-3.2 s", format_duration(-3200ms));
}

}  // namespace
}  // namespace kvcachefs
